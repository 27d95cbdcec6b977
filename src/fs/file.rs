//! An open file, read and written at offsets.
//!
//! ```text
//!  in the page cache, at most 64 KiB   read at once on the runtime's thread, preadv2(2) with RWF_NOWAIT
//!  otherwise                           a program of one operation: by io_uring with those of other tasks, or on the
//!                                      blocking pool
//! ```

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::coop::consume_budget;

use super::cached::{self, Filled, Looks};
use super::error::{Error, Result, Step};
use super::{Metadata, OpenOptions};
use crate::buf::pool;
use crate::ops::Operation;
use crate::ops::open::Close;
use crate::ops::program::Program;
use crate::ops::rw::{Read, Write};
use crate::ops::stat::Stat;
use crate::ops::sync::{Allocate, SetLen, Sync};
use crate::ops::vectored::{ReadVectored, WriteVectored};
use crate::runtime::programs::{Alone, has_ring, looks_now, run};
use crate::sys::errno::Errno;
use crate::sys::fd;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::flags::FallocateFlags;
use crate::sys::{call, mounts, transfer};

/// Maximum length of a read that is tried at once, so that it delays no other task: about 10 us of copying.
pub(super) const NOW_MAX: usize = 64 << 10;

// Path of a single operation in the mode `Auto`. With io_uring, an operation that does not block completes during the
// submission; for other reads, no thread is occupied while they wait. Operations for which the kernel always uses a
// thread gain nothing over the pool: buffered writes on most file systems, syncs, changes of length.
const READ: Alone = Alone::Ring;
const WRITE: Alone = Alone::Pool;
pub(super) const CHANGE: Alone = Alone::Pool;
pub(super) const OPEN: Alone = Alone::Pool;

/// An open file without a position: every read and write has an offset. Clones share the file.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("log");
/// use millstream::fs::File;
///
/// let file = File::create(&path).await?;
/// file.write_at(0, "first, second").await?;
/// file.sync_data().await?;
/// file.close().await?;
///
/// let file = File::open(&path).await?;
/// assert_eq!(file.read_at(7, 100).await?, "second");
/// # Ok(())
/// # }
/// ```
///
/// # I/O path
///
/// Reads of up to 64 KiB that are in the page cache complete at once, on the same thread. Everything else uses
/// io_uring, together with operations of other tasks in the same turn, or the blocking pool; see
/// [`runtime::Io`](crate::runtime::Io). With io_uring, after four reads in a row that were not in the page cache,
/// further reads of the file skip the page cache look-up and go to the ring. Every 128th of them still looks into the
/// page cache; if it finds its bytes, the next reads look again too. A runtime thread never blocks on the disk. The
/// status of an open file is also read at once: local file systems have it in memory. A network file system may ask its
/// server.
///
/// On a file system that is not known to be local, such as NFS and FUSE, io_uring is not used, because it may wait for
/// the server in the call that submits an operation.
///
/// Some operations can block a runtime thread, or fail:
///
/// * One read of hundreds of MiB by io_uring: if the bytes are in the page cache, the kernel copies them during the
///   submission. Read long ranges in parts, or by a [`FileReader`](super::FileReader).
/// * A file system whose server is a process (FUSE, [fuse(4)](https://man7.org/linux/man-pages/man4/fuse.4.html)):
///   opening a file waits for its answer on the runtime thread, except with [`Io::Epoll`](crate::runtime::Io::Epoll).
/// * A file that was opened with `O_DIRECT` and passed to [`from_std`](Self::from_std). This crate does not align
///   offsets, lengths and buffers, so reads and writes may fail with `EINVAL`
///   ([open(2)](https://man7.org/linux/man-pages/man2/open.2.html)).
///
/// # Errors
///
/// Errors are [`Error`]s with the path, the step and the error number; `?` converts them to an [`io::Error`] that
/// contains it. Offsets and lengths beyond 2^63 - 1 fail with `EINVAL`. Outside of a tokio runtime operations fail with
/// [`Step::Start`].
///
/// # Cancel safety
///
/// Dropping a future asks the kernel to cancel the operation. **That does not undo it:** it may have completed, in part
/// or in full, or may still complete, and its result is lost. Its memory and descriptor are kept until then.
///
/// # Closing
///
/// The descriptor is closed when the last clone is dropped and the last operation in flight has ended. An error of this
/// close is lost; use [`close`](Self::close) to get it.
///
/// # Differences from tokio's `File`
///
/// * It implements neither `AsyncRead` nor `AsyncWrite` nor `AsyncSeek`. [`reader`](Self::reader) and
///   [`writer`](Self::writer) return types that do. Each has its own position; there is no shared one.
/// * `clone` stands for `try_clone`, [`sync`](Self::sync) for `sync_all`, [`from_std`](Self::from_std) for `From`, and
///   [`into_std`](Self::into_std), which does not wait, for `into_std` and `try_into_std`.
/// * There is no `set_max_buf_size`, `set_permissions` or `set_times`, and of `AsFd`, `AsRawFd` and `FromRawFd` only
///   `AsFd`.
#[derive(Clone)]
pub struct File(Arc<FileInner>);

struct FileInner {
    file: Arc<std::fs::File>,
    path: Arc<Path>,
    opened: Metadata,
    /// Whether its operations may wait for a server or another process.
    may_wait: bool,
    looks: Looks,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.as_fd()).field("path", &self.path()).finish()
    }
}

fd::file_as_fd!(File, 0.file);

impl File {
    /// Opens a file for reading.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing. Creates it, or truncates an existing one.
    pub async fn create(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Does the same as [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Wraps an open file. Its position is neither used nor moved. Errors name it "the open file".
    ///
    /// # Errors
    ///
    /// Fails with `ESPIPE` for a file without offsets: a pipe, a socket or a terminal.
    pub fn from_std(file: std::fs::File) -> Result<Self> {
        let path = Path::new("the open file");
        Self::with_offsets(mounts::may_wait(file.as_fd()), file, path).map_err(|e| failed(Step::Open, path, e))
    }

    /// Checks that the file has offsets: io_uring would ignore them on other files, and a read would wait for a peer.
    pub(super) fn with_offsets(may_wait: bool, file: std::fs::File, path: &Path) -> io::Result<Self> {
        let opened = Metadata::new(&call::cached_status(file.as_fd())?);
        if !opened.is_file() && !opened.is_dir() {
            transfer::position(file.as_fd())?;
        }
        Ok(Self::new(may_wait, file, path, opened))
    }

    pub(super) fn new(may_wait: bool, file: std::fs::File, path: &Path, opened: Metadata) -> Self {
        let (file, path) = (Arc::new(file), path.into());
        Self(Arc::new(FileInner { file, path, opened, may_wait, looks: Looks::default() }))
    }

    /// Returns the std file. If the file is still shared, returns a duplicate of the descriptor; this may fail with
    /// `EMFILE`.
    pub fn into_std(self) -> io::Result<std::fs::File> {
        let file = Arc::clone(self.shared());
        drop(self);
        Arc::try_unwrap(file).or_else(|shared| shared.try_clone())
    }

    /// Returns the path as given by the caller; "the open file" after [`from_std`](Self::from_std).
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns the metadata that the file had when it was opened. [`metadata`](Self::metadata) returns the current one.
    pub fn opened(&self) -> &Metadata {
        &self.0.opened
    }

    /// Reads `len` bytes from `offset` into pool memory; fewer only if the file ends before.
    ///
    /// All memory is leased first, so pass the actual length and not an upper bound.
    ///
    /// # Errors
    ///
    /// Fails like [pread(2)](https://man7.org/linux/man-pages/man2/pread.2.html). Bytes read before the error are lost.
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.check(Step::Read, offset, len as u64)?;
        let mut lease = pool::lease(len);
        // Without the ring, a look into the page cache saves a hop to another thread. With the ring, it saves little.
        if len <= NOW_MAX && looks_now() && (self.0.looks.next() || !has_ring()) {
            consume_budget().await;
            match cached::fill(&mut lease, self.as_fd(), offset, len) {
                Ok(Filled::End) => return Ok(lease.freeze()),
                Ok(Filled::Whole | Filled::Part) => self.0.looks.tell(!lease.is_empty() || len == 0),
                Err(e) => return Err(self.failed(Step::Read, e)),
            }
        }
        if lease.len() == len {
            return Ok(lease.freeze());
        }
        let read = Read::resume(Arc::clone(self.shared()).into(), offset, len, lease);
        Ok(self.perform(read, READ, Step::Read).await?.0.into_bytes())
    }

    /// Reads several adjacent pieces from `offset`, usually with one call. Returns one piece for each of `lens`; pieces
    /// behind the end of the file are empty.
    pub async fn read_vectored_at(&self, offset: u64, lens: &[usize]) -> Result<Vec<Bytes>> {
        let total = lens.iter().fold(0u64, |total, &len| total.saturating_add(len as u64));
        self.check(Step::Read, offset, total)?;
        if total <= NOW_MAX as u64 {
            let mut whole = self.read_at(offset, total as usize).await?;
            return Ok(lens.iter().map(|&len| whole.split_to(len.min(whole.len()))).collect());
        }
        let read = ReadVectored::new(Arc::clone(self.shared()).into(), offset, lens);
        Ok(self.perform(read, READ, Step::Read).await?.0.into_pieces())
    }

    /// Writes all of `bytes` at `offset`, passing them to the kernel without a copy. After `Ok` they are in the page
    /// cache, not on the disk: see [`sync_data`](Self::sync_data).
    ///
    /// # Errors
    ///
    /// Fails like [pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html). A part may have been written, for
    /// example until the disk was full.
    pub async fn write_at(&self, offset: u64, bytes: impl Into<Bytes>) -> Result<()> {
        let bytes: Bytes = bytes.into();
        let len = bytes.len() as u64;
        self.check(Step::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let (_, n) =
            self.perform(Write::new(Arc::clone(self.shared()).into(), offset, bytes), WRITE, Step::Write).await?;
        self.all(n, len)
    }

    /// Does the same as [`write_at`](Self::write_at) for several consecutive pieces, with one call if the kernel
    /// accepts them at once.
    pub async fn write_vectored_at(&self, offset: u64, pieces: impl IntoIterator<Item = Bytes>) -> Result<()> {
        let pieces: Vec<Bytes> = pieces.into_iter().collect();
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.check(Step::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let write = WriteVectored::new(Arc::clone(self.shared()).into(), offset, pieces);
        let (_, n) = self.perform(write, WRITE, Step::Write).await?;
        self.all(n, len)
    }

    /// Syncs data and metadata. A new name also needs a sync of its directory, as in [`replace`](super::replace()).
    ///
    /// # Errors
    ///
    /// Fails like [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html). **An error is returned once**, and
    /// the pages then count as written: a later successful sync proves nothing.
    pub async fn sync(&self) -> Result<()> {
        self.perform(Sync::new(Arc::clone(self.shared()).into(), false), CHANGE, Step::Sync).await.map(drop)
    }

    /// Does the same as [`sync`](Self::sync), without times and other metadata that is not needed to read the contents.
    pub async fn sync_data(&self) -> Result<()> {
        self.perform(Sync::new(Arc::clone(self.shared()).into(), true), CHANGE, Step::Sync).await.map(drop)
    }

    /// Allocates disk space for the range and extends the file to its end if needed: later writes to it do not fail
    /// with a full disk. Unwritten bytes read as zeros.
    ///
    /// # Errors
    ///
    /// Fails like [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html): `EOPNOTSUPP` on file systems
    /// without support; `EINVAL` if `len` is 0.
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check(Step::Allocate, offset, len)?;
        let allocate = Allocate::new(Arc::clone(self.shared()).into(), FallocateFlags::empty(), offset, len);
        self.perform(allocate, CHANGE, Step::Allocate).await.map(drop)
    }

    /// Truncates the file to `len` bytes, or extends it with zeros.
    ///
    /// # Errors
    ///
    /// Fails like [ftruncate(2)](https://man7.org/linux/man-pages/man2/ftruncate.2.html).
    pub async fn set_len(&self, len: u64) -> Result<()> {
        self.check(Step::SetLength, 0, len)?;
        self.perform(SetLen::new(Arc::clone(self.shared()).into(), len), CHANGE, Step::SetLength).await.map(drop)
    }

    /// Returns the current status of the file. Fails like
    /// [statx(2)](https://man7.org/linux/man-pages/man2/statx.2.html).
    pub async fn metadata(&self) -> Result<Metadata> {
        if looks_now() {
            let found = call::status(self.as_fd()).map_err(|e| self.failed(Step::Inspect, e))?;
            return Ok(Metadata::new(&found));
        }
        let (stat, _) = self.perform(Stat::new(Arc::clone(self.shared()).into()), CHANGE, Step::Inspect).await?;
        Ok(Metadata::new(stat.found().expect("internal: a completed statx has a result")))
    }

    /// Closes the file and returns the result: on a network file system, whether earlier writes have reached the
    /// server. If clones share the file, closes a duplicate of the descriptor, and theirs stays open.
    ///
    /// # Errors
    ///
    /// Fails like [close(2)](https://man7.org/linux/man-pages/man2/close.2.html). The descriptor is closed in any case.
    pub async fn close(self) -> Result<()> {
        let path = Arc::clone(&self.0.path);
        let fd = OwnedFd::from(self.into_std().map_err(|e| failed(Step::Close, &path, e))?);
        perform(Close::fd(fd), CHANGE, Step::Close, &path).await.map(drop)
    }

    pub(crate) fn shared(&self) -> &Arc<std::fs::File> {
        &self.0.file
    }

    /// Returns where an operation runs that would run at `alone` on a local file system.
    pub(super) fn place(&self, alone: Alone) -> Alone {
        if self.0.may_wait { Alone::OffRing } else { alone }
    }

    pub(crate) fn failed(&self, step: Step, error: io::Error) -> Error {
        failed(step, self.path(), error)
    }

    /// Returns an error if the file has fewer than `end` bytes now.
    pub(crate) fn reaches(&self, end: u64) -> io::Result<()> {
        if call::status(self.as_fd())?.stx_size >= end { Ok(()) } else { Err(self.short()) }
    }

    /// Returns the error of a body that finds fewer bytes than it promised.
    pub(crate) fn short(&self) -> io::Error {
        let message = format!("the file is shorter than the {} bytes it had when it was opened", self.opened().len());
        io::Error::new(io::ErrorKind::UnexpectedEof, message)
    }

    fn check(&self, step: Step, offset: u64, len: u64) -> Result<()> {
        // With io_uring an offset of -1 means the position of the file.
        match offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok()) {
            true => Ok(()),
            false => Err(self.failed(step, Errno::INVAL.into())),
        }
    }

    fn all(&self, written: u64, len: u64) -> Result<()> {
        if written == len { Ok(()) } else { Err(self.failed(Step::Write, io::ErrorKind::WriteZero.into())) }
    }

    async fn perform<T: Operation>(&self, op: T, alone: Alone, step: Step) -> Result<(T, u64)> {
        perform(op, self.place(alone), step, self.path()).await
    }
}

pub(super) async fn perform<T: Operation>(op: T, alone: Alone, step: Step, path: &Path) -> Result<(T, u64)> {
    let program = run(Box::new(Program::of(op)), alone).await.map_err(|e| failed(Step::Start, path, e))?;
    let (op, moved) = program.into_single();
    Ok((op, moved.map_err(|e| failed(step, path, e))?))
}

pub(super) fn failed(step: Step, path: &Path, error: io::Error) -> Error {
    Error::new(step, path, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_std_file_without_offsets_is_refused() {
        let (pipe, _writer) = std::io::pipe().unwrap();
        let error = File::from_std(OwnedFd::from(pipe).into()).unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (Step::Open, Some(Errno::SPIPE.raw_os_error())));
        assert!(File::from_std(std::fs::File::open("/").unwrap()).unwrap().opened().is_dir());
    }
}
