//! The encoded events of a stream: chunks of whole events, without an index.
//!
//! An event ends with an empty line and contains no other, so an event is found by counting empty lines in its chunk.

use bytes::Bytes;

/// Length up to which events share a chunk. A chunk is one frame: with its header it fits one TLS record.
const CHUNK: usize = (16 << 10) - 9;

/// Events by number, from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Store {
    chunks: Vec<Chunk>,
    /// The last chunk, while it grows.
    tail: Vec<u8>,
    tail_first: u64,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Number of the first event.
    first: u64,
    events: Bytes,
}

impl Store {
    /// Returns the number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: &[u8]) {
        if self.tail.len() + event.len() > CHUNK {
            self.seal();
        }
        self.tail.extend_from_slice(event);
        self.next += 1;
        self.bytes += event.len();
    }

    /// Ends the growing chunk.
    fn seal(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        let mut tail = std::mem::take(&mut self.tail);
        tail.shrink_to_fit();
        self.chunks.push(Chunk { first: self.tail_first, events: tail.into() });
        self.tail_first = self.next;
    }

    /// Gives spare memory back, because no event follows.
    pub(crate) fn finish(&mut self) {
        self.seal();
        self.chunks.shrink_to_fit();
    }

    /// Returns events from the number `from` on, and the number after them. `None` if there is none.
    pub(crate) fn page(&self, from: u64) -> Option<(Bytes, u64)> {
        if from >= self.next {
            return None;
        }
        if from >= self.tail_first {
            let start = start_of(&self.tail, from - self.tail_first)?;
            return Some((Bytes::copy_from_slice(&self.tail[start..]), self.next));
        }
        let after = self.chunks.partition_point(|chunk| chunk.first <= from);
        let chunk = self.chunks.get(after.checked_sub(1)?)?;
        let start = start_of(&chunk.events, from - chunk.first)?;
        let next = self.chunks.get(after).map_or(self.tail_first, |chunk| chunk.first);
        Some((chunk.events.slice(start..), next))
    }
}

/// Returns the offset behind the first `skipped` events.
fn start_of(events: &[u8], skipped: u64) -> Option<usize> {
    let mut at = 0;
    for _ in 0..skipped {
        at += events[at..].windows(2).position(|end| end == b"\n\n")? + 2;
    }
    Some(at)
}

#[cfg(test)]
mod tests;
