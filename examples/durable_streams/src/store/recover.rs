//! Opens a store: the snapshot, then the records of the journal that it does not cover.
//!
//! The journal ends at the first record that is not valid. If a later record is valid and the first of its commit, then
//! everything before that commit was synced, and the invalid record was damaged since: an error, because to go on would
//! lose appends that were confirmed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock};

use quick_cache::sync::Cache;

use super::journal::{self, JUMP, Journal, segment_path};
use super::record::{self, Meta, Record, is_later};
use super::stream::{Append, Stream};
use super::{FILES_MAX, Store, Table, at, data_path};

#[derive(Debug, Default)]
struct Recovery {
    table: Table,
    ids: HashMap<u64, Arc<Stream>>,
    /// The number that follows.
    next: u64,
    salt: u32,
}

impl Store {
    /// Opens the store in a directory, which is created if it does not exist.
    pub(crate) async fn open(dir: &Path, segment: u64, streams_max: usize) -> io::Result<Arc<Self>> {
        fs::create_dir_all(dir.join("data")).map_err(at(dir))?;
        let lock = File::create(dir.join("lock")).map_err(at(dir))?;
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        let used = |_| io::Error::other(format!("{}: another process has it open", dir.display()));
        rustix::fs::flock(&lock, operation).map_err(used)?;
        let data = File::open(dir.join("data")).map_err(at(dir))?;
        let Recovery { table, next, salt, .. } = recover(dir)?;
        let store = Arc::new(Self {
            journal: Journal::new(next + JUMP, segment, salt),
            dir: dir.to_owned(),
            table: RwLock::new(table),
            files: Cache::new(FILES_MAX),
            streams_max,
            data,
            _lock: lock,
        });
        // From here on, the snapshot has a number that no earlier process has reached, and the journal may be lost. The
        // files may be unsynced if an earlier process died, also files without a record in the journal.
        let mut all = store.all().iter().map(|stream| stream.meta.id).collect();
        store.checkpoint(&mut all).await?;
        journal::prepare(dir, segment).map_err(at(dir))?;
        Ok(store)
    }
}

fn recover(dir: &Path) -> io::Result<Recovery> {
    let mut recovery = Recovery::default();
    let path = dir.join("snapshot");
    match fs::read(&path) {
        Ok(bytes) => recovery.snapshot(&bytes).ok_or_else(|| damaged(&path, "the snapshot is not valid"))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            if segment_path(dir, 0).exists() {
                return Err(damaged(&path, "the snapshot is missing, but there is a journal"));
            }
            recovery.next = 1;
            recovery.salt = RandomState::new().hash_one(dir) as u32;
        }
        Err(e) => return Err(at(&path)(e)),
    }
    let (mut segments, mut unread) = (Vec::new(), Vec::new());
    for path in [segment_path(dir, 0), segment_path(dir, 1)] {
        let Ok(bytes) = fs::read(&path) else { continue };
        if let Some(record::Found { number, record: Record::Begin { .. }, .. }) = record::decode(&bytes, recovery.salt)
        {
            segments.push((number, path, bytes));
        } else {
            unread.push((path, bytes));
        }
    }
    segments.sort_unstable_by_key(|&(number, ..)| number);
    for (number, path, bytes) in &segments {
        if *number > recovery.next {
            return Err(damaged(path, &format!("the records from {} on are missing", recovery.next)));
        }
        recovery.segment(path, bytes)?;
    }
    for (path, bytes) in &unread {
        if (0..bytes.len())
            .any(|later| is_later(&bytes[later..], recovery.next, recovery.next + JUMP / 2, recovery.salt))
        {
            return Err(damaged(path, "its first record is damaged, and appends behind it were confirmed"));
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

    /// Replays the records of a segment from the next one on.
    fn segment(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let begin = record::decode(bytes, self.salt).expect("it was read before");
        let (mut at, mut number) = (begin.len, begin.number);
        while let Some(found) = record::decode(&bytes[at..], self.salt).filter(|found| found.number == number) {
            if number == self.next {
                let wrong = || damaged(path, &format!("the record at {at} does not fit the stream"));
                self.apply(&found).ok_or_else(wrong)?;
                self.next += 1;
            }
            (at, number) = (at + found.len, number + 1);
        }
        if number == self.next
            && (at + 1..bytes.len()).any(|later| is_later(&bytes[later..], number, number + JUMP / 2, self.salt))
        {
            return Err(damaged(path, &format!("the record at {at} is damaged, and appends behind it were confirmed")));
        }
        Ok(())
    }

    fn apply(&mut self, found: &record::Found<'_>) -> Option<()> {
        let data = found.data;
        match found.record {
            Record::Create { ref meta, closed } => {
                if self.ids.contains_key(&meta.id) {
                    return Some(());
                }
                let stream = self.create(meta.clone())?;
                let (content_type, seq, producer) = (&*meta.content_type, None, None);
                let append = Append { content_type, data, close: closed, seq, producer };
                stream.replay(stream.base(), &append, found.number)
            }
            Record::Append { id, at, close, seq, producer } => {
                // A stream that the snapshot does not have was deleted before it was made.
                let Some(stream) = self.ids.get(&id) else { return Some(()) };
                stream.replay(at, &Append { content_type: "", data, close, seq, producer }, found.number)
            }
            Record::Delete { id } => {
                let Some(stream) = self.ids.get(&id).cloned() else { return Some(()) };
                if !std::mem::replace(&mut stream.state().queued.deleted, true) {
                    for removed in self.table.remove(&stream, |source| source.state().queued.deleted) {
                        self.ids.remove(&removed.meta.id);
                    }
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Checks that the files have the bytes that the snapshot says, and removes files of no stream.
    fn files(&self, dir: &Path) -> io::Result<()> {
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
                fs::remove_file(dir.join("data").join(name))?;
            }
        }
        Ok(())
    }
}
