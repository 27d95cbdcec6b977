//! Counts the bytes that hyper holds for a stream.
//!
//! The stream counts the bytes that it accepts from hyper. Only hyper knows the length of a head, so the stream looks
//! for the end of each head in the bytes. After the head, hyper holds nothing once the number of accepted bytes equals
//! the length of all frames with their framing.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;

/// Nothing is counted, because a count would not be certain.
const OFF: u32 = 0;
/// All accepted bytes belong to frames.
const BODY: u32 = 1;
/// The accepted bytes belong to a head. The lower bits have the place in it.
const HEAD: u32 = 1 << 31;

/// Bytes that hyper owes a stream. Counts nothing until [`reset`](Self::reset). Only the task of the connection uses
/// it, so loads and stores suffice.
#[derive(Debug, Default)]
pub struct Owed {
    place: AtomicU32,
    bytes: AtomicU64,
}

impl Owed {
    /// Begins to count. hyper holds nothing.
    pub fn reset(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.place.store(BODY, Ordering::Relaxed);
    }

    /// Stops counting.
    pub fn stop(&self) {
        self.place.store(OFF, Ordering::Relaxed);
    }

    /// Begins a message before hyper writes its head. Stops counting if hyper may still hold bytes of the last message.
    pub fn begin(&self) {
        let place = if self.is_settled() { HEAD } else { OFF };
        self.place.store(place, Ordering::Relaxed);
    }

    /// Records that hyper was given a frame, which it writes as `bytes` bytes with its framing.
    pub fn gave(&self, bytes: u64) {
        if self.place.load(Ordering::Relaxed) != OFF {
            self.bytes.store(self.bytes.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        }
    }

    /// Records the result of a write.
    #[inline]
    pub fn wrote(owed: Option<&Self>, written: &Poll<io::Result<usize>>, bufs: &[IoSlice<'_>]) {
        if let (Some(owed), Poll::Ready(Ok(n))) = (owed, written) {
            owed.accepted(*n, bufs);
        }
    }

    /// Records that the stream has accepted the first `n` bytes of `bufs`.
    fn accepted(&self, n: usize, bufs: &[IoSlice<'_>]) {
        match self.place.load(Ordering::Relaxed) {
            OFF => return,
            BODY => self.took(n),
            place => self.look_for_body(Head::unpacked(place), n, bufs),
        }
        // hyper holds the rest of this write. So it has framed more than was counted, and no count is certain.
        if self.is_settled() && n < bufs.iter().map(|buf| buf.len()).sum() {
            self.stop();
        }
    }

    /// If more bytes are accepted than hyper was given, the state is not settled either.
    fn took(&self, n: usize) {
        self.bytes.store(self.bytes.load(Ordering::Relaxed).wrapping_sub(n as u64), Ordering::Relaxed);
    }

    fn look_for_body(&self, mut head: Head, n: usize, bufs: &[IoSlice<'_>]) {
        let mut left = n;
        for buf in bufs {
            let mut bytes = &buf[..left.min(buf.len())];
            left -= bytes.len();
            while let Some(end) = head.find_end(bytes) {
                bytes = &bytes[end..];
                if !head.is_interim {
                    self.place.store(BODY, Ordering::Relaxed);
                    return self.took(bytes.len() + left);
                }
                head = Head::default();
            }
        }
        self.place.store(head.packed(), Ordering::Relaxed);
    }

    /// Returns whether it counts.
    pub fn is_counting(&self) -> bool {
        self.place.load(Ordering::Relaxed) != OFF
    }

    /// Returns whether the head of a message was not accepted to its end.
    pub fn awaits_head(&self) -> bool {
        self.place.load(Ordering::Relaxed) & HEAD != 0
    }

    /// Returns whether hyper holds no bytes: the head was accepted, and all frames behind it.
    pub fn is_settled(&self) -> bool {
        self.place.load(Ordering::Relaxed) == BODY && self.bytes.load(Ordering::Relaxed) == 0
    }
}

/// A place in a head.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Head {
    /// Number of bytes before it, up to the last number that matters.
    at: u8,
    /// The number of bytes of the empty line, with the end of the line before it, that were found.
    ended: u8,
    /// Whether the head is that of an interim response (RFC 9110 §15.2), which another head follows.
    is_interim: bool,
}

impl Head {
    const END: &[u8] = b"\r\n\r\n";
    /// Places and values of the bytes that tell an interim response, as in `HTTP/1.1 100`, from any other head.
    const INTERIM: [(u8, u8); 3] = [(0, b'H'), (4, b'/'), (9, b'1')];

    fn packed(self) -> u32 {
        HEAD | u32::from_be_bytes([0, self.is_interim.into(), self.ended, self.at])
    }

    fn unpacked(place: u32) -> Self {
        let [_, is_interim, ended, at] = place.to_be_bytes();
        Self { at, ended, is_interim: is_interim != 0 }
    }

    /// Returns the number of bytes up to the end of the head, if it is in `bytes`.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        // Nearly every head is a separate slice. If the slice also has bytes of a body, they remain owed, which is
        // safe.
        if self.at == 0 && bytes.ends_with(Self::END) && !is_interim(bytes) {
            return Some(bytes.len());
        }
        bytes.iter().position(|&byte| self.step(byte)).map(|last| last + 1)
    }

    /// Returns whether `byte` is the last of the head.
    fn step(&mut self, byte: u8) -> bool {
        if let Some((_, value)) = Self::INTERIM.iter().find(|(at, _)| *at == self.at) {
            self.is_interim = byte == *value && (self.is_interim || self.at == 0);
        }
        self.at = self.at.saturating_add(1);
        self.ended = match byte {
            _ if byte == Self::END[usize::from(self.ended)] => self.ended + 1,
            b'\r' => 1,
            _ => 0,
        };
        usize::from(self.ended) == Self::END.len()
    }
}

/// Returns whether a head that begins with `bytes` is that of an interim response.
fn is_interim(bytes: &[u8]) -> bool {
    Head::INTERIM.iter().all(|&(at, value)| bytes.get(usize::from(at)) == Some(&value))
}

#[cfg(test)]
mod tests;
