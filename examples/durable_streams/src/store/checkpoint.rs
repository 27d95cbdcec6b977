//! Moves the records of the journal into the files of the streams, so that its segments can be written again.
//!
//! 1. The next number is noted, and the state of all streams is captured. It has everything before that number.
//! 2. It waits until the captured records are on the disk, because a snapshot must not have an append that the journal may lose.
//! 3. The bytes are written into the files of the streams, and synced.
//! 4. The snapshot is replaced. A process that dies before this begins again at the old one: the same bytes are written
//!    to the same places.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millstream::fs::Replace;
use tokio::sync::Notify;

use super::journal::lock;
use super::record::{self, Record};
use super::stream::Stream;
use super::{Store, at, data_path};

/// Time between checkpoints, if anything was written.
const PERIOD: Duration = Duration::from_secs(10);
/// With more files than this, one sync of the file system replaces a sync of each file.
const SYNCS_MAX: usize = 32;

/// Files that were written since the last checkpoint.
type Unsynced = HashSet<u64>;

struct Capture {
    snapshot: Bytes,
    streams: Vec<Arc<Stream>>,
    /// The first number that the snapshot does not cover.
    from: u64,
    last: u64,
}

/// Work for the task that maintains the files.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) changed: Notify,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) checkpoint: bool,
    /// Streams with a long tail in memory.
    pub(crate) long: Vec<Arc<Stream>>,
    pub(crate) removed: Vec<u64>,
}

impl Tasks {
    pub(crate) fn add(&self, add: impl FnOnce(&mut Work)) {
        add(&mut lock(&self.work));
        self.changed.notify_one();
    }

    pub(crate) fn take(&self) -> Work {
        std::mem::take(&mut *lock(&self.work))
    }
}

impl Store {
    /// Writes long tails into files, removes files of deleted streams, and makes checkpoints, until the process ends.
    pub(crate) async fn maintain(self: Arc<Self>) {
        // Also files that an earlier process has written, if the first checkpoint has failed.
        let mut unsynced: Unsynced = self.all().iter().map(|stream| stream.meta.id).collect();
        let mut time = tokio::time::interval(PERIOD);
        if !self.journal.is_stalled() {
            // The first one is at once.
            time.tick().await;
        }
        loop {
            let mut full = tokio::select! {
                () = self.journal.tasks.changed.notified() => false,
                _ = time.tick() => {
                    self.sweep();
                    self.journal.next() > self.journal.covered()
                }
            };
            let tasks = self.journal.tasks.take();
            full |= tasks.checkpoint;
            self.unlink(&tasks.removed).await;
            while let Err(e) = self.write(&mut unsynced, tasks.long.clone(), full).await {
                self.journal.refuse(&e);
                tokio::time::sleep(Duration::from_secs(1)).await;
                // Deleted streams give space.
                self.sweep();
                self.unlink(&self.journal.tasks.take().removed).await;
                full = true;
            }
            self.journal.resume();
        }
    }

    async fn write(self: &Arc<Self>, unsynced: &mut Unsynced, long: Vec<Arc<Stream>>, full: bool) -> io::Result<()> {
        if full {
            return self.checkpoint(unsynced).await;
        }
        let store = Arc::clone(self);
        let mut files = std::mem::take(unsynced);
        let flushed;
        (*unsynced, flushed) = blocking(move || {
            let flushed = store.flush(&long, &mut files);
            Ok((files, flushed))
        })
        .await?;
        flushed
    }

    /// Makes a checkpoint.
    pub(crate) async fn checkpoint(self: &Arc<Self>, unsynced: &mut Unsynced) -> io::Result<()> {
        let store = Arc::clone(self);
        let Capture { snapshot, streams, from, last } = blocking(move || Ok(store.capture())).await?;
        self.journal.need(last).await;
        let store = Arc::clone(self);
        let mut files = std::mem::take(unsynced);
        let (files, flushed) = blocking(move || {
            let flushed = store.flush(&streams, &mut files);
            let flushed = flushed.map(|()| store.sync(&files));
            Ok((files, flushed))
        })
        .await?;
        if let Err(e) = flushed {
            *unsynced = files;
            return Err(e);
        }
        let path = self.dir.join("snapshot");
        Replace::new(&path).run(snapshot).await.map_err(io::Error::other)?;
        self.journal.cover(from);
        Ok(())
    }

    fn capture(&self) -> Capture {
        let from = self.journal.next();
        // Nothing is created or deleted meanwhile.
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let (mut snapshot, mut last) = (BytesMut::new(), 0);
        let mut add = |record: &Record<'_>| record::encode(record, b"", from, true, 0, &mut snapshot);
        add(&Record::Begin { next_id: table.next_id, salt: self.journal.salt });
        // Sources have lower ids than their forks, and come first.
        let mut streams: Vec<_> = table.paths.values().cloned().collect();
        streams.sort_unstable_by_key(|stream| stream.meta.id);
        for stream in &streams {
            let saved = stream.state().queued.clone();
            last = last.max(saved.last);
            add(&Record::Stream { meta: stream.meta.clone(), saved });
        }
        add(&Record::End { streams: streams.len() as u64 });
        Capture { snapshot: snapshot.freeze(), streams, from, last }
    }

    fn flush(&self, streams: &[Arc<Stream>], wrote: &mut Unsynced) -> io::Result<()> {
        for stream in streams {
            if stream.unwritten(0).is_none() {
                continue;
            }
            let path = data_path(&self.dir, stream.meta.id);
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
            wrote.insert(stream.meta.id);
            let mut len = 0;
            while let Some((from, bytes)) = stream.unwritten(len) {
                file.write_all_at(&bytes, from).map_err(at(&path))?;
                len += bytes.len();
            }
            stream.wrote(len);
        }
        Ok(())
    }

    /// Syncs files and their names. An error ends the process: a second sync would succeed without the lost bytes.
    fn sync(&self, files: &Unsynced) {
        let synced = || -> io::Result<()> {
            if files.is_empty() {
                return Ok(());
            }
            // The directory is open since the start, so no error of the file system is missed.
            #[cfg(target_os = "linux")]
            if files.len() > SYNCS_MAX {
                return Ok(rustix::fs::syncfs(&self.data)?);
            }
            for &id in files {
                match File::open(data_path(&self.dir, id)) {
                    Ok(file) => file.sync_data()?,
                    // It was deleted meanwhile.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
            self.data.sync_all()
        };
        if let Err(e) = synced() {
            eprintln!("error: {}: {e}", self.dir.join("data").display());
            std::process::exit(1);
        }
    }

    /// Removes files of streams whose deletion is on the disk.
    async fn unlink(&self, removed: &[u64]) {
        for &id in removed {
            self.files.remove(&id);
            // A stream without bytes has no file. The next start tries again to remove the others.
            let _ = millstream::fs::remove(data_path(&self.dir, id)).await;
        }
    }
}

async fn blocking<T: Send + 'static>(job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(job).await.unwrap_or_else(|e| Err(io::Error::other(e)))
}
