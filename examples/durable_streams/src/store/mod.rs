//! The streams of a directory.
//!
//! The base is a journal of its own, not `sse::log::disk::Disk`: appends are binary, a record must not be removed
//! before it is applied to the file of its stream, and a commit into space that is already written needs no metadata
//! sync.
//!
//! | name | contents |
//! |---|---|
//! | `lock` | nothing; locked while the store is open |
//! | `journal-0` to `journal-3` | the segments of the journal, which take turns |
//! | `snapshot` | all streams without their bytes, and the number of the first record with bytes that are not in the files |
//! | `data/ID` | the bytes of a stream; JSON has a comma and a line feed behind each message; the snapshot has the checksums |

mod append;
mod checkpoint;
mod journal;
mod record;
mod recover;
mod stream;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use millstream::body::FileBody;
use millstream::fs;
use quick_cache::sync::Cache;

pub(crate) use append::{Append, Done};
pub(crate) use journal::{Journal, Room, Watch};
pub(crate) use record::{Expiry, Meta, Producer};
pub(crate) use stream::{Kind, Stream, View, now};

use crate::refusal::Refusal;
use journal::Change;
use record::Record;
use stream::{Part, Place};

/// Files that are kept open for readers.
const FILES_MAX: usize = 512;
/// Sources of sources of a fork.
const DEPTH_MAX: usize = 32;

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) journal: Journal,
    dir: PathBuf,
    table: RwLock<Table>,
    files: Cache<u64, fs::File>,
    streams_max: usize,
    /// The directory of the files.
    data: File,
    _lock: File,
}

#[derive(Debug, Default)]
struct Table {
    paths: HashMap<Box<str>, Arc<Stream>>,
    /// Number of forks by the id of their source.
    forks: HashMap<u64, u32>,
    next_id: u64,
}

#[derive(Debug)]
pub(crate) struct Fork {
    pub(crate) source: Arc<Stream>,
    pub(crate) at: u64,
    /// Whether the request had the position.
    pub(crate) given: bool,
}

impl Store {
    /// Returns the stream of a path. A stream that has expired is removed. `GONE` if it was deleted, and forks need it.
    pub(crate) fn get(&self, path: &str) -> Result<Arc<Stream>, StatusCode> {
        let found = self.table.read().unwrap_or_else(PoisonError::into_inner).paths.get(path).cloned();
        let stream = found.ok_or(StatusCode::NOT_FOUND)?;
        if stream.state().queued.deleted {
            return Err(StatusCode::GONE);
        }
        if stream.is_expired(Instant::now()) {
            let is_needed = self.delete(&stream).is_some_and(|(_, is_needed)| is_needed);
            return Err(if is_needed { StatusCode::GONE } else { StatusCode::NOT_FOUND });
        }
        Ok(stream)
    }

    /// Creates a stream with its first data, or finds the one that was created by the same request. Returns whether it
    /// is new.
    pub(crate) fn create(
        &self,
        mut meta: Meta,
        fork: Option<Fork>,
        append: &Append<'_>,
        room: Option<Room>,
    ) -> Result<(Arc<Stream>, bool), Refusal> {
        // An expired one makes room.
        let _ = self.get(&meta.path);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = table.paths.get(&meta.path) {
            let origin = |meta: &Meta| Some((meta.origin?.0, fork.as_ref()?.given.then_some(meta.origin?.1)));
            let Meta { content_type, expiry, .. } = &stream.meta;
            let is_same = stream.meta.origin.is_some() == fork.is_some() && origin(&stream.meta) == origin(&meta);
            let is_same = is_same && *content_type == meta.content_type && *expiry == meta.expiry;
            let queued = &stream.state().queued;
            return match is_same && !queued.deleted && queued.closed == append.close {
                true => Ok((Arc::clone(stream), false)),
                false => Err(Refusal::conflict("there is another stream with this path")),
            };
        }
        let parent = fork.map(|fork| fork.source);
        if parent.as_ref().is_some_and(|parent| parent.state().queued.deleted) {
            return Err(Refusal::conflict("the source was deleted"));
        }
        let sources = std::iter::successors(parent.as_ref(), |stream| stream.parent.as_ref());
        if sources.count() > DEPTH_MAX {
            return Err(Refusal::bad("the fork has too many sources of sources"));
        }
        if table.paths.len() >= self.streams_max {
            return Err(Refusal::new(StatusCode::INSUFFICIENT_STORAGE, "the server has its maximum of streams"));
        }
        let room = room.ok_or_else(Refusal::disk_full)?;
        meta.id = table.next_id;
        let stream = Arc::new(Stream::new(meta, parent));
        let record = Record::Create { meta: stream.meta.clone(), closed: append.close };
        let change = |data| Change::Data { stream: Arc::clone(&stream), data, close: append.close, _room: room };
        let number = self.journal.push(&record, append.data, change);
        stream.apply(&mut stream.state().queued, append, number);
        stream.set_born(number);
        table.insert(Arc::clone(&stream));
        Ok((stream, true))
    }

    /// Deletes a stream. Returns the number of the record, and whether forks still need the bytes; `None` if it is
    /// deleted already.
    pub(crate) fn delete(&self, stream: &Arc<Stream>) -> Option<(u64, bool)> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = stream.state();
        if std::mem::replace(&mut state.queued.deleted, true) {
            return None;
        }
        let record = Record::Delete { id: stream.meta.id };
        let removed = table.remove(stream, |source| source.state().queued.deleted);
        let needed = removed.is_empty();
        let number = self.journal.push(&record, b"", |_| Change::Removed(removed));
        state.queued.last = number;
        state.live = None;
        Some((number, needed))
    }

    /// Returns some bytes between two positions, at least one: from memory, or those in a block of a file.
    ///
    /// Fails if the block does not have the bytes that were appended, or the stream was deleted.
    pub(crate) async fn read(&self, stream: &Stream, at: u64, end: u64) -> io::Result<Vec<Bytes>> {
        let Part { id, block, range, sum } = match stream.find(at, end) {
            Place::Memory(bytes) if bytes.is_empty() => return Err(io::ErrorKind::NotFound.into()),
            Place::Memory(bytes) => return Ok(vec![bytes]),
            Place::File(part) => part,
        };
        let file = self.file(id, block.end).await.map_err(io::Error::other)?;
        // The frames are slices of the mapped file, so no copy is in memory.
        let mut body = FileBody::new(&file, block.clone()).map_err(io::Error::other)?;
        let (mut read, mut found, mut at) = (Vec::new(), 0, block.start);
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            found = crc32c::crc32c_append(found, &bytes);
            let end = at + bytes.len() as u64;
            let place = |position: u64| (position.clamp(at, end) - at) as usize;
            read.push(bytes.slice(place(range.start)..place(range.end)));
            at = end;
        }
        if found != sum {
            let text = format!("{}: bytes {block:?} are damaged", file.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        read.retain(|bytes| !bytes.is_empty());
        Ok(read)
    }

    /// Returns the file of a stream, which has at least `len` bytes.
    async fn file(&self, id: u64, len: u64) -> Result<fs::File, fs::Error> {
        // A file that was opened before has grown since, but its bodies end at the length that it had.
        if let Some(file) = self.files.get(&id).filter(|file| file.opened().len() >= len) {
            return Ok(file);
        }
        let file = fs::File::open(data_path(&self.dir, id)).await?;
        self.files.insert(id, file.clone());
        Ok(file)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).paths.values().cloned().collect()
    }

    /// Removes expired streams, and hubs without readers.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        for stream in self.all() {
            stream.sweep();
            if stream.is_expired(now) {
                self.delete(&stream);
            }
        }
    }

    pub(crate) fn streams(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).paths.len()
    }
}

impl Table {
    fn insert(&mut self, stream: Arc<Stream>) {
        self.next_id = self.next_id.max(stream.meta.id + 1);
        if let Some(parent) = &stream.parent {
            *self.forks.entry(parent.meta.id).or_default() += 1;
        }
        self.paths.insert(stream.meta.path.clone(), stream);
    }

    /// Removes a stream, and the deleted sources that only it needed. Removes nothing if forks need it.
    fn remove(&mut self, stream: &Arc<Stream>, is_deleted: impl Fn(&Stream) -> bool) -> Vec<Arc<Stream>> {
        let mut removed = Vec::new();
        let mut next = Some(Arc::clone(stream)).filter(|stream| !self.forks.contains_key(&stream.meta.id));
        while let Some(stream) = next {
            self.paths.remove(&stream.meta.path);
            next = stream.parent.clone().filter(|parent| {
                let forks = self.forks.get_mut(&parent.meta.id).expect("a fork is counted");
                *forks -= 1;
                let is_last = *forks == 0;
                if is_last {
                    self.forks.remove(&parent.meta.id);
                }
                is_last && is_deleted(parent)
            });
            removed.push(stream);
        }
        removed
    }
}

fn segment_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("journal-{index}"))
}

fn data_path(dir: &Path, id: u64) -> PathBuf {
    dir.join("data").join(format!("{id:016x}"))
}

/// Adds the path to an error.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}
