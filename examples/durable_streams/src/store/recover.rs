//! Opens a store: the snapshot, then the records of the journal that it does not cover.
//!
//! The journal ends at the first record that is not valid. If a later record is valid and the first of its commit, then
//! everything before that commit was synced, and the invalid record was damaged since: an error, because to go on would
//! lose appends that were confirmed.
//!
//! The opening makes a checkpoint, and the journal begins anew. Without space for the checkpoint it continues behind the
//! records that were found, so that streams can be read and deleted.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, RwLock};

use quick_cache::sync::Cache;

use super::append::Append;
use super::journal::{self, JUMP, Journal, SEGMENTS, file_len};
use super::record::{self, Found, Meta, Record, has_later};
use super::stream::Stream;
use super::{FILES_MAX, Store, Table, at, data_path, segment_path};

#[derive(Debug, Default)]
struct Recovery {
    table: Table,
    ids: HashMap<u64, Arc<Stream>>,
    /// The number that follows.
    next: u64,
    salt: u64,
    /// The first number that the snapshot does not cover, and the first id that it does not know.
    covered: u64,
    new_id: u64,
    /// The segments with the numbers of their first records, and the end of the last one.
    segments: VecDeque<(usize, u64)>,
    end: u64,
}

impl Store {
    /// Opens the store in a directory, which is created if it does not exist. Returns the end of the last segment.
    pub(crate) async fn open(dir: &Path, segment: u64, streams_max: usize) -> io::Result<(Arc<Self>, u64)> {
        fs::create_dir_all(dir.join("data")).map_err(at(dir))?;
        let lock = File::create(dir.join("lock")).map_err(at(dir))?;
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        let used = |_| io::Error::other(format!("{}: another process has it open", dir.display()));
        rustix::fs::flock(&lock, operation).map_err(used)?;
        let data = File::open(dir.join("data")).map_err(at(dir))?;
        let Recovery { table, next, salt, covered, segments, end, .. } = recover(dir)?;
        let store = Arc::new(Self {
            journal: Journal::new(next + JUMP, segment, salt),
            dir: dir.to_owned(),
            table: RwLock::new(table),
            files: Cache::new(FILES_MAX),
            streams_max,
            data,
            _lock: lock,
        });
        // From here on, the snapshot has a number that no earlier process has reached, and the journal may be lost.
        let Err(e) = store.write(Vec::new(), u64::MAX).await else {
            journal::prepare(dir, segment).map_err(at(dir))?;
            return Ok((store, u64::MAX));
        };
        let is_whole = |index| fs::metadata(segment_path(dir, index)).is_ok_and(|file| file.len() == file_len(segment));
        if segments.is_empty() || !(0..SEGMENTS).all(is_whole) {
            return Err(e);
        }
        let end = store.journal.continue_in(dir, segments, end).map_err(at(dir))?;
        store.journal.cover(covered);
        store.journal.refuse(&e);
        Ok((store, end))
    }
}

fn recover(dir: &Path) -> io::Result<Recovery> {
    let mut recovery = Recovery::default();
    let path = dir.join("snapshot");
    match fs::read(&path) {
        Ok(bytes) if record::is_old(&bytes) => {
            return Err(damaged(&path, "an earlier version of this program has written it, in another format"));
        }
        Ok(bytes) => recovery.snapshot(&bytes).ok_or_else(|| damaged(&path, "the snapshot is not valid"))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if segment_path(dir, 0).exists() {
                return Err(damaged(&path, "the snapshot is missing, but there is a journal"));
            }
            recovery.next = 1;
            recovery.salt = RandomState::new().hash_one(dir);
        }
        Err(e) => return Err(at(&path)(e)),
    }
    (recovery.covered, recovery.new_id) = (recovery.next, recovery.table.next_id);
    let mut segments = Vec::new();
    for (index, path) in (0..SEGMENTS).map(|index| (index, segment_path(dir, index))).filter(|(_, path)| path.exists())
    {
        let mut head = Vec::new();
        File::open(&path).and_then(|file| file.take(64).read_to_end(&mut head)).map_err(at(&path))?;
        let begin = record::decode(&head, recovery.salt).filter(|found| matches!(found.record, Record::Begin { .. }));
        let began = begin.map(|found| found.number);
        segments.push((began.is_none(), began, index, path));
    }
    segments.sort_unstable();
    for (_, began, index, path) in segments {
        let bytes = fs::read(&path).map_err(at(&path))?;
        match began {
            Some(began) if began > recovery.next => {
                return Err(damaged(&path, &format!("the records from {} on are missing", recovery.next)));
            }
            Some(began) => {
                recovery.end = recovery.segment(&path, &bytes, began)?;
                recovery.segments.push_back((index, began));
            }
            None if has_later(&bytes, recovery.next, recovery.salt) => {
                return Err(damaged(&path, "its first record is damaged, and appends behind it were confirmed"));
            }
            None => {}
        }
    }
    recovery.files(dir)?;
    Ok(recovery)
}

fn damaged(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

impl Recovery {
    fn snapshot(&mut self, mut bytes: &[u8]) -> Option<()> {
        let begin = record::decode(bytes, 0)?;
        let Record::Begin { next_id, salt } = begin.record else { return None };
        (self.table.next_id, self.next, self.salt) = (next_id, begin.number, salt);
        bytes = &bytes[begin.len..];
        loop {
            let found = record::decode(bytes, 0).filter(|found| found.number == begin.number)?;
            bytes = &bytes[found.len..];
            match found.record {
                Record::Stream { meta, saved } => self.create(meta)?.restore(saved),
                Record::End { streams } => {
                    return (streams == self.ids.len() as u64 && bytes.is_empty()).then_some(());
                }
                _ => return None,
            }
        }
    }

    fn create(&mut self, meta: Meta) -> Option<Arc<Stream>> {
        let parent = match meta.origin {
            Some((source, _)) => Some(self.ids.get(&source)?.clone()),
            None => None,
        };
        let stream = Arc::new(Stream::new(meta, parent));
        self.ids.insert(stream.meta.id, Arc::clone(&stream));
        self.table.insert(Arc::clone(&stream));
        Some(stream)
    }

    /// Replays the records of a segment from the next one on, and returns their end.
    fn segment(&mut self, path: &Path, bytes: &[u8], mut number: u64) -> io::Result<u64> {
        let mut at = 0;
        while let Some(found) = record::decode(&bytes[at..], self.salt) {
            if let Record::Begin { .. } = found.record
                && found.number >= number
            {
                // Another process has continued, with numbers far behind.
                number = found.number;
                self.next = self.next.max(number);
            } else if found.number == number {
                if number == self.next {
                    let wrong = || damaged(path, &format!("the record at {at} does not fit the stream"));
                    self.apply(&found).ok_or_else(wrong)?;
                    self.next += 1;
                }
                number += 1;
            } else {
                break;
            }
            at += found.len;
        }
        // Records that the snapshot covers are not needed, but those behind them are.
        if has_later(&bytes[at..], number.max(self.next - 1), self.salt) {
            return Err(damaged(path, &format!("the record at {at} is damaged, and appends behind it were confirmed")));
        }
        Ok(at as u64)
    }

    fn apply(&mut self, found: &Found<'_>) -> Option<()> {
        let data = found.data;
        match found.record {
            Record::Create { ref meta, closed } => {
                let stream = match self.ids.get(&meta.id).cloned() {
                    Some(stream) => stream,
                    // It was deleted before the snapshot was made.
                    None if meta.id < self.new_id => return Some(()),
                    None => self.create(meta.clone())?,
                };
                let append = Append { content_type: "", data, close: closed, seq: None, producer: None };
                stream.replay(stream.base(), &append, found.number)
            }
            Record::Append { id, at, close, seq, producer } => {
                // A stream that the snapshot does not have was deleted before it was made.
                let Some(stream) = self.ids.get(&id) else { return Some(()) };
                stream.replay(at, &Append { content_type: "", data, close, seq, producer }, found.number)
            }
            Record::Delete { id } => {
                let Some(stream) = self.ids.get(&id).cloned() else { return Some(()) };
                let mut state = stream.state();
                state.queued.deleted = true;
                state.queued.last = state.queued.last.max(found.number);
                drop(state);
                for removed in self.table.remove(&stream, |source| source.state().queued.deleted) {
                    self.ids.remove(&removed.meta.id);
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Checks that the journal and the files have the bytes that the snapshot says, and removes files of no stream.
    fn files(&self, dir: &Path) -> io::Result<()> {
        if let Some(stream) = self.ids.values().find(|stream| !stream.is_whole()) {
            return Err(damaged(dir, &format!("bytes of {} are missing in the journal", stream.meta.path)));
        }
        for stream in self.ids.values().filter(|stream| stream.file_len() > 0) {
            let path = data_path(dir, stream.meta.id);
            let (len, needed) = (fs::metadata(&path).map_err(at(&path))?.len(), stream.file_len());
            if len < needed {
                return Err(damaged(&path, &format!("the file has {len} bytes, but {needed} were confirmed")));
            }
        }
        for entry in fs::read_dir(dir.join("data"))? {
            let name = entry?.file_name();
            let id = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
            if id.is_some_and(|id| !self.ids.contains_key(&id)) {
                // The next start tries again. Its number is never used again.
                let _ = fs::remove_file(dir.join("data").join(name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    #[test]
    fn damage_of_covered_records_does_not_hide_those_behind() {
        let mut bytes = BytesMut::new();
        let mut starts = Vec::new();
        let begin = Record::Begin { next_id: 0, salt: 0 };
        for (number, record) in [(5, begin), (5, Record::Delete { id: 1 }), (6, Record::Delete { id: 1 })] {
            starts.push(bytes.len());
            record::encode(&record, b"", number, true, 3, &mut bytes);
        }
        // The snapshot covers what is before `next`.
        let open = |next, bytes: &[u8]| {
            let mut recovery = Recovery { next, salt: 3, ..Recovery::default() };
            recovery.segment(Path::new("journal"), bytes, 5).map(|_| recovery.next).ok()
        };
        assert_eq!((open(5, &bytes), open(6, &bytes), open(7, &bytes)), (Some(7), Some(7), Some(7)));
        bytes[starts[1]] ^= 1;
        assert_eq!((open(5, &bytes), open(6, &bytes), open(7, &bytes)), (None, None, Some(7)));
        bytes[starts[2]] ^= 1;
        assert_eq!((open(5, &bytes), open(6, &bytes)), (Some(5), Some(6)), "an end that is torn");
    }
}
