//! Reads the records of a segment in order. All calls **wait for the disk**.

use std::fs::File;
use std::io;

use super::record::{self, HEAD, Head, RecordCheck};
use crate::sys::call;
use crate::sys::fd::AsFd;

/// Length of a read; a longer record is read at once.
const READ: usize = 256 << 10;

/// End of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The event that would be next, and the offset of its record.
    pub(super) id: u64,
    pub(super) offset: u64,
    /// The fault of the record there; `None` at the end of the segment.
    pub(super) wrong: Option<&'static str>,
}

/// A part of a file in memory.
#[derive(Debug)]
pub struct Window<'a> {
    file: &'a File,
    len: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Creates a window on the first `len` bytes of a file, which is read from `offset` on.
    pub fn new(file: &'a File, len: u64, offset: u64) -> Self {
        Self { file, len, at: offset, bytes: Vec::new() }
    }

    /// Returns the bytes from `offset` on: at least `want`, unless the file ends before.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn get(&mut self, offset: u64, want: usize) -> io::Result<&[u8]> {
        let have = (self.at..=self.at + self.bytes.len() as u64).contains(&offset);
        let skip = if have { (offset - self.at) as usize } else { self.bytes.len() };
        if self.bytes.len() - skip < want && self.at + (self.bytes.len() as u64) < self.len || !have {
            self.bytes.drain(..skip);
            self.at = offset;
            self.fill(want.max(READ))?;
            return Ok(&self.bytes);
        }
        Ok(&self.bytes[skip..])
    }

    fn fill(&mut self, want: usize) -> io::Result<()> {
        let mut filled = self.bytes.len();
        let most = self.len.saturating_sub(self.at).min(want as u64) as usize;
        self.bytes.resize(most.max(filled), 0);
        while filled < self.bytes.len() {
            match call::read_blocking(self.file.as_fd(), &mut self.bytes[filled..], self.at + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        self.bytes.truncate(filled);
        Ok(())
    }
}

/// Reads the records of the first `len` bytes of a segment, from the event `id` at `offset`. Passes each with its
/// offset to `found`.
pub(super) fn scan(
    file: &File,
    len: u64,
    (mut id, mut offset): (u64, u64),
    mut found: impl FnMut(u64, u64),
) -> io::Result<Scanned> {
    let mut window = Window::new(file, len, offset);
    let mut want = HEAD;
    while offset < len {
        let bytes = window.get(offset, want)?;
        let have = bytes.len();
        match record::check_record(bytes, id) {
            RecordCheck::Whole(record) => {
                found(id, offset);
                offset += record as u64;
                id += 1;
                want = HEAD;
            }
            RecordCheck::Part(needs) if have < needs && offset + (needs as u64) <= len && want < needs => want = needs,
            RecordCheck::Part(_) => return Ok(Scanned { id, offset, wrong: Some("the record is incomplete") }),
            RecordCheck::Bad(wrong) => return Ok(Scanned { id, offset, wrong: Some(wrong) }),
        }
    }
    Ok(Scanned { id, offset, wrong: None })
}

/// Returns whether a commit of events after `id` begins behind the bad record at `offset`. If so, the record was
/// complete once: a commit begins only after the previous one was synced.
///
/// A record begins after a line feed, with a colon and a digit. No line of an event begins so, so the contents of
/// events cannot be mistaken for a record.
pub(super) fn has_later_commit(file: &File, len: u64, id: u64, mut offset: u64) -> io::Result<bool> {
    let mut window = Window::new(file, len, offset);
    let head_at = |window: &mut Window<'_>, offset| {
        Ok::<_, io::Error>(window.get(offset, HEAD)?.first_chunk().and_then(Head::read))
    };
    let begins_at = |window: &mut Window<'_>, offset| match head_at(window, offset)?.filter(|head| head.begins_commit) {
        Some(head) => Ok::<_, io::Error>(record::is_later_commit(window.get(offset, HEAD + head.len)?, id)),
        None => Ok(false),
    };
    // The line feed at the end of the bad record may itself be damaged.
    if let Some(head) = head_at(&mut window, offset)?
        && begins_at(&mut window, offset + (HEAD + head.len) as u64)?
    {
        return Ok(true);
    }
    loop {
        let bytes = window.get(offset, 2)?;
        if bytes.len() < 2 {
            return Ok(false);
        }
        let Some(at) = bytes.windows(2).position(|two| two == b"\n:") else {
            // The last byte may be the line feed.
            offset += bytes.len() as u64 - 1;
            continue;
        };
        offset += at as u64 + 1;
        if begins_at(&mut window, offset)? {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests;
