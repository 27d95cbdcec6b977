//! Moves the records of the journal into the files of the streams, so that its segments can be written again.
//!
//! A checkpoint is made when no segment is free. Only the streams with bytes in the oldest one are written, each with
//! all bytes that it has in the journal. So a stream has a write for many appends, and most small streams have no file.
//!
//! 1. The bytes are written into the files of the streams, and synced.
//! 2. The state of all streams is captured, one by one. Records are replayed from the first one on with bytes that are
//!    in no file; those that a captured state has already only add their bytes to it.
//! 3. It waits until the captured records are on the disk, because a snapshot must not have an append that the journal
//!    may lose. Commits do not wait for it.
//! 4. The snapshot is replaced. A process that dies before this begins again at the old one: the same bytes are written
//!    to the same places.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use millstream::fs::Replace;

use super::journal::{Work, fail, lock};
use super::record::{self, Record};
use super::stream::Stream;
use super::{Store, at, data_path};

/// Time between searches for expired streams.
const PERIOD: Duration = Duration::from_secs(10);

impl Store {
    /// Writes long tails into files, removes files of deleted streams, and makes checkpoints, until the process ends.
    pub(crate) async fn maintain(self: Arc<Self>) {
        let mut time = tokio::time::interval(PERIOD);
        let mut until = if self.journal.is_stalled() { u64::MAX } else { 0 };
        loop {
            let Work { long, removed } = std::mem::take(&mut *lock(&self.journal.work));
            self.unlink(&removed).await;
            match self.write(long, until).await {
                Ok(()) => {
                    self.journal.resume();
                    tokio::select! {
                        () = self.journal.has_work.notified() => {}
                        _ = time.tick() => self.sweep(),
                    }
                    until = self.journal.due();
                }
                Err(e) => {
                    self.journal.refuse(&e);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    // Deleted streams give space.
                    self.sweep();
                    until = u64::MAX;
                }
            }
        }
    }

    /// Writes long tails into files. Makes a checkpoint for the records before `until`, if there are any.
    pub(crate) async fn write(self: &Arc<Self>, long: Vec<Arc<Stream>>, until: u64) -> io::Result<()> {
        let store = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            long.iter().try_for_each(|stream| store.flush(stream))?;
            if until == 0 { Ok(None) } else { store.capture(until).map(Some) }
        });
        let Some((snapshot, covered, last)) = done.await.unwrap_or_else(|e| Err(io::Error::other(e)))? else {
            return Ok(());
        };
        self.journal.wait(last).await;
        Replace::new(self.dir.join("snapshot")).run(snapshot.freeze()).await.map_err(io::Error::other)?;
        self.journal.cover(covered);
        Ok(())
    }

    /// Returns a snapshot, the first number that it does not cover, and the last one that it has.
    fn capture(&self, until: u64) -> io::Result<(BytesMut, u64, u64)> {
        let (mut streams, next_id, mut last, mut covered) = {
            // Streams that are created from now on have later records than those that are visible.
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            let (last, next) = (self.journal.next() - 1, self.journal.durable() + 1);
            (table.paths.values().cloned().collect::<Vec<_>>(), table.next_id, last, next)
        };
        streams.iter().filter(|stream| stream.first() < until).try_for_each(|stream| self.flush(stream))?;
        // A second sync would succeed without the lost bytes.
        self.sync().unwrap_or_else(|e| fail(&self.dir.join("data"), &e));
        // Sources have lower ids than their forks, and come first.
        streams.sort_unstable_by_key(|stream| stream.meta.id);
        covered = streams.iter().map(|stream| stream.first()).fold(covered, u64::min);
        let mut records = BytesMut::new();
        let mut add = |record: &Record<'_>| record::encode(record, b"", covered, true, 0, &mut records);
        add(&Record::Begin { next_id, salt: self.journal.salt });
        for stream in &streams {
            let saved = stream.state().queued.clone();
            last = last.max(saved.last);
            add(&Record::Stream { meta: stream.meta.clone(), saved });
        }
        add(&Record::End { streams: streams.len() as u64 });
        Ok((records, covered, last))
    }

    /// Writes the bytes of a stream into its file.
    fn flush(&self, stream: &Stream) -> io::Result<()> {
        // Bytes that become visible meanwhile have later records.
        let next = self.journal.durable() + 1;
        if stream.unwritten(0).is_none() {
            return Ok(());
        }
        let path = data_path(&self.dir, stream.meta.id);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
        let mut len = 0;
        while let Some((from, bytes)) = stream.unwritten(len) {
            file.write_all_at(&bytes, from).map_err(at(&path))?;
            len += bytes.len();
        }
        stream.wrote(len, next);
        Ok(())
    }

    /// Syncs all files and their names.
    fn sync(&self) -> io::Result<()> {
        // The directory is open since the start, so no error of the file system is missed.
        #[cfg(target_os = "linux")]
        rustix::fs::syncfs(&self.data)?;
        #[cfg(not(target_os = "linux"))]
        for entry in std::fs::read_dir(self.dir.join("data"))? {
            std::fs::File::open(entry?.path())?.sync_all()?;
        }
        self.data.sync_all()
    }

    /// Removes files of streams whose deletion is on the disk.
    async fn unlink(&self, removed: &[u64]) {
        for &id in removed {
            self.files.remove(&id);
            // Most streams of few bytes have no file. The next start tries again to remove the others.
            let _ = millstream::fs::remove(data_path(&self.dir, id)).await;
        }
    }
}
