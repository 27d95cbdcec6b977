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

/// A part of a segment in memory.
struct Window<'a> {
    file: &'a File,
    len: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// Returns the bytes from `offset` on: at least `want`, unless the segment ends before.
    fn get(&mut self, offset: u64, want: usize) -> io::Result<&[u8]> {
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
    let mut window = Window { file, len, at: offset, bytes: Vec::new() };
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
/// complete once, because a commit begins after the one before it was synced.
///
/// Records begin behind a line feed, where an event has no colon and digit. The contents of events are not searched.
pub(super) fn has_later_commit(file: &File, len: u64, id: u64, mut offset: u64) -> io::Result<bool> {
    let mut window = Window { file, len, at: offset, bytes: Vec::new() };
    let head_at = |window: &mut Window<'_>, offset| {
        Ok::<_, io::Error>(window.get(offset, HEAD)?.first_chunk().and_then(Head::read))
    };
    let begins_at = |window: &mut Window<'_>, offset| match head_at(window, offset)?.filter(|head| head.begins_commit) {
        Some(head) => Ok::<_, io::Error>(record::is_later_commit(window.get(offset, HEAD + head.len)?, id)),
        None => Ok(false),
    };
    // The line feed at the end of the bad record may be its fault.
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
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn record(id: u64, data: usize, begins_commit: bool) -> Vec<u8> {
        let event = format!("data: {}\nid: {id}\n\n", "x".repeat(data)).into_bytes();
        [&record::head(&event, begins_commit)[..], &event].concat()
    }

    #[test]
    fn records_of_any_length_are_found() {
        let lens = [10, READ, 0, READ - 100, 3 * READ, 1];
        let bytes: Vec<u8> = (5..).zip(lens).flat_map(|(id, len)| record(id, len, true)).collect();
        let mut all = Vec::new();
        let scanned = scan(&file(&bytes), bytes.len() as u64, (5, 0), |id, offset| {
            assert!(matches!(record::check_record(&bytes[offset as usize..], id), RecordCheck::Whole(_)));
            all.push(id);
        });
        assert_eq!(scanned.unwrap(), Scanned { id: 11, offset: bytes.len() as u64, wrong: None });
        assert_eq!(all, [5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn a_commit_behind_a_bad_record_is_found() {
        let parts = [record(1, 10, true), record(2, READ + 1, false), record(3, 10, true), record(4, 9, false)];
        let (two, three) = (parts[0].len() as u64, (parts[0].len() + parts[1].len()) as u64);
        let bytes = parts.concat();
        let (file, len) = (file(&bytes), bytes.len() as u64);
        assert!(has_later_commit(&file, len, 1, 0).unwrap());
        assert!(has_later_commit(&file, len, 2, two).unwrap());
        assert!(!has_later_commit(&file, len, 3, three).unwrap(), "the last commit itself");
        assert!(!has_later_commit(&file, len - 60, 2, two).unwrap(), "its record is incomplete");
    }

    #[test]
    fn a_commit_is_found_at_any_distance() {
        for distance in READ - 3..READ + 3 {
            let bytes = [&b"x".repeat(distance)[..], b"\n", &record(7, 10, true)].concat();
            let (len, found) = (bytes.len() as u64, file(&bytes));
            assert!(has_later_commit(&found, len, 6, 0).unwrap(), "{distance}");
            assert!(!has_later_commit(&found, len - 1, 6, 0).unwrap(), "{distance}");
            let inside = [&b"x".repeat(distance)[..], b"\nx", &record(7, 10, true)].concat();
            assert!(!has_later_commit(&file(&inside), inside.len() as u64, 6, 0).unwrap(), "{distance}");
        }
    }

    #[test]
    fn a_commit_behind_a_wrong_line_feed_is_found() {
        let mut bytes = [record(1, 10, true), record(2, 10, true)].concat();
        let end = bytes.len() / 2 - 1;
        assert_eq!(bytes[end], b'\n');
        bytes[end] = b'x';
        assert!(has_later_commit(&file(&bytes), bytes.len() as u64, 1, 0).unwrap());
    }
}
