//! The directory with the files of streams, and the task that removes them in time.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use millstream::fs::Durability;
use millstream::internal::log_files::{may_wait, try_lock, unlock};
use millstream::sse::log::LogFuture;
use millstream::sse::log::disk::DiskError;
use tokio::time::{Instant, sleep};

use super::disk_stream::DiskStream;
use super::header::{self, Field, HEADER, Header};
use super::stream_file::StreamFile;
use crate::disk::job::job;
use crate::stream_log::{StreamLog, StreamLogError, StreamLogs};

/// Suffix of the files.
const SUFFIX: &str = ".stream";
/// Permissions of new files, less the umask: events belong to their owners.
const MODE: u32 = 0o600;
/// Time between two looks at the time of the next removal.
const LOOK: Duration = Duration::from_secs(1);
/// Time after which the directory is read again, in milliseconds: other processes create files, too.
const SWEEP: u64 = 30_000;
/// Time for which a file without a header is kept, in milliseconds. Its process is about to write it, or was killed.
const HEADLESS: u64 = 60_000;
/// Time after its last change for which a file is kept at most, in milliseconds: three years, longer than the longest
/// options. The checksum of the header does not have the time of removal.
const LONGEST: u64 = 3 * 365 * 24 * 60 * 60 * 1000;
/// Time for which an opening waits for a file that another one creates or removes, and the time between two attempts.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Logs of [`SharedStreams`](crate::SharedStreams) in a directory: for several processes on one machine, and for
/// streams that continue after a restart.
///
/// Each stream has one file, named by a digest of its owner and key. Clones share the directory, and so do other
/// processes of the same user. The file system must have locks
/// ([flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html)) that all processes see: a local one.
///
/// # Guarantees
///
/// * **One writer.** The claim of a stream is the lock of its file, which the kernel releases when the process ends. A
///   process that is paused keeps it.
/// * **Recovery.** Each record has a checksum and its number. The next writer cuts off a part of a record at the end. No
///   reader has seen it.
/// * **Durability.** Events survive the end of the process, and a power cut as [`Durability`] says:
///   [`Durability::None`] does not sync, `Data` and `Full` sync once for all events that wait.
/// * **Time to live.** A file is removed after the [time to live](crate::StreamsBuilder::ttl) of its stream, or
///   if it has no end, after that and the [greatest age](crate::StreamsBuilder::max_age). A task of the runtime
///   that has opened the directory does it within some seconds, also with the files of earlier processes, and of other
///   processes within half a minute.
///
/// # Cost
///
/// Events that are sent while a write runs are in the next write. Each stream at each instance has one descriptor until
/// its end. An instance that has readers and does not write looks at the length of the file 40 times in a
/// second.
#[derive(Clone, Debug)]
pub struct DiskStreams(Arc<StreamsDirectory>);

#[derive(Debug)]
struct StreamsDirectory {
    path: PathBuf,
    absolute: PathBuf,
    file: File,
    may_wait: bool,
    durability: Durability,
    /// When the next file has to be removed.
    due: Arc<AtomicU64>,
}

impl DiskStreams {
    /// Opens the directory, creates it if needed, and removes files that are no longer kept.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created, opened or read, and outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the directory created.
    pub async fn open(path: impl Into<PathBuf>, durability: Durability) -> Result<Self, DiskError> {
        let path = path.into();
        let named = path.clone();
        let opened = job(move || {
            std::fs::create_dir_all(&path)?;
            // Another current directory does not change it.
            let absolute = std::fs::canonicalize(&path)?;
            let file = File::open(&absolute)?;
            let may_wait = may_wait(&file);
            let directory = StreamsDirectory { path, absolute, file, may_wait, durability, due: Arc::default() };
            directory.sweep()?;
            Ok(Arc::new(directory))
        });
        let failed = |e| DiskError::Io { path: named, step: "open the directory of streams", source: Arc::new(e) };
        let directory = opened.await.map_err(failed)?;
        tokio::spawn(sweep(Arc::downgrade(&directory)));
        Ok(Self(directory))
    }

    /// Returns the path of the directory as given by the caller.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

impl StreamLogs for DiskStreams {
    fn open<'a>(
        &'a self,
        name: &'a str,
        create: Option<Duration>,
    ) -> LogFuture<'a, Result<Option<Arc<dyn StreamLog>>, StreamLogError>> {
        Box::pin(async move {
            let since = Instant::now();
            loop {
                let (directory, name) = (Arc::clone(&self.0), format!("{name}{SUFFIX}"));
                let opened = job(move || directory.open(&directory.absolute.join(name), create)).await;
                match opened {
                    Ok(file) => {
                        let stream = file.map(|file| DiskStream::new(file, self.0.may_wait));
                        return Ok(stream.map(|stream| Arc::new(stream) as Arc<dyn StreamLog>));
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock && since.elapsed() < PATIENCE => sleep(PAUSE).await,
                    Err(e) => return Err(e.into()),
                }
            }
        })
    }
}

impl StreamsDirectory {
    /// Opens the file of a stream. Fails with `WouldBlock` if another process creates or removes it. **Waits for the
    /// disk**, as all methods.
    fn open(&self, path: &Path, create: Option<Duration>) -> io::Result<Option<StreamFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let found = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => match create {
                None => return Ok(None),
                Some(_) => options.create_new(true).mode(MODE).open(path),
            },
            opened => opened,
        };
        let found = match found {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(io::ErrorKind::WouldBlock.into()),
            found => found?,
        };
        let now = header::now();
        let header = Header::read(&found)?;
        let is_kept = remove_at(&found, header)? > now;
        if let Some(header) = header.filter(|_| is_kept) {
            return Ok(Some(self.stream(found, header.epoch())));
        }
        let Some(create) = create else { return Ok(None) };
        if header.is_some() {
            self.remove(path, &found)?;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.create(found, create)
    }

    /// Writes the header of a new file, under its lock.
    fn create(&self, file: File, keep: Duration) -> io::Result<Option<StreamFile>> {
        let is_ours = try_lock(&file)? && file.metadata()?.nlink() > 0;
        if !is_ours || Header::read(&file)?.is_some() {
            let _ = unlock(&file);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // The keys of the hasher differ between calls.
        let epoch = RandomState::new().hash_one(0) as u32;
        // The records behind a damaged header belong to another stream.
        file.set_len(0)?;
        Header::create(&file, epoch, header::now().saturating_add(header::millis(keep)))?;
        if self.durability == Durability::Full {
            self.file.sync_all()?;
        }
        unlock(&file)?;
        Ok(Some(self.stream(file, epoch)))
    }

    fn stream(&self, file: File, epoch: u32) -> StreamFile {
        StreamFile::new(file, epoch, self.durability, Arc::clone(&self.due))
    }

    /// Removes all files that are no longer kept. A file that fails does not keep the others. Returns the first error,
    /// with the path of its file.
    fn sweep(&self) -> io::Result<()> {
        let now = header::now();
        // Before the files are read, so that an end that is written meanwhile counts. A swap, which sees the ends that
        // were written before the times that it replaces.
        self.due.swap(now + SWEEP, Ordering::AcqRel);
        let mut swept = Ok(());
        for entry in std::fs::read_dir(&self.absolute)? {
            let entry = entry?;
            if is_name(&entry.file_name()) {
                let path = entry.path();
                let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
                swept = swept.and(self.look(&path, now).map_err(failed));
            }
        }
        swept
    }

    /// Removes a file that is no longer kept, or notes when it has to be removed.
    fn look(&self, path: &Path, now: u64) -> io::Result<()> {
        // Another process may have removed it.
        let Ok(found) = OpenOptions::new().read(true).write(true).open(path) else { return Ok(()) };
        match remove_at(&found, Header::read(&found)?)? {
            at if at <= now => self.remove(path, &found),
            at => {
                self.due.fetch_min(at, Ordering::AcqRel);
                Ok(())
            }
        }
    }

    /// Removes a file that is no longer kept, unless it is locked.
    fn remove(&self, path: &Path, found: &File) -> io::Result<()> {
        if try_lock(found)? {
            let is_due = remove_at(found, Header::read(found)?)? <= header::now();
            if is_due && found.metadata()?.nlink() > 0 {
                std::fs::remove_file(path)?;
            }
            unlock(found)?;
        }
        Ok(())
    }
}

/// Returns whether a file of a stream may have this name: the directory may have others.
fn is_name(name: &OsStr) -> bool {
    let digits = name.as_encoded_bytes().strip_suffix(SUFFIX.as_bytes());
    digits.is_some_and(|digits| {
        digits.len() == 64 && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns when a file with this header may be removed.
fn remove_at(file: &File, header: Option<Header>) -> io::Result<u64> {
    let metadata = file.metadata()?;
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).map_or(0, header::millis);
    Ok(match header {
        Some(header) => header.get(Field::RemoveAt).min(changed.saturating_add(LONGEST)),
        None if metadata.len() < HEADER => changed.saturating_add(HEADLESS),
        // It is damaged, or has another format.
        None => u64::MAX,
    })
}

/// Removes files in time, as long as the directory is used.
async fn sweep(directory: Weak<StreamsDirectory>) {
    loop {
        sleep(LOOK).await;
        let Some(directory) = directory.upgrade() else { return };
        if header::now() >= directory.due.load(Ordering::Acquire) {
            // A failure is repeated later.
            let _ = job(move || directory.sweep()).await;
        }
    }
}

#[cfg(test)]
mod tests;
