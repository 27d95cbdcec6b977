//! An open file, read and written at offsets.
//!
//! ```text
//!  in the page cache, at most 64 KiB   read at once on the runtime's thread, preadv2(2) with RWF_NOWAIT
//!  else                                a program of one operation: by ring with those of other tasks, or on the pool
//! ```

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tokio::task::coop::consume_budget;

use super::cached::{self, Filled};
use super::error::{Error, Result, Step};
use super::reader::Reader;
use super::writer::Writer;
use super::{OpenOptions, Status};
use crate::buf::pool;
use crate::runtime::programs::{Alone, looks_now, run};
use crate::sys::call;
use crate::uring::op::Operation;
use crate::uring::op::open::Close;
use crate::uring::op::rw::{Read, Write};
use crate::uring::op::stat::Stat;
use crate::uring::op::sync::{Allocate, SetLen, Sync};
use crate::uring::op::vectored::{ReadVectored, WriteVectored};
use crate::uring::program::Program;

/// Most bytes of a read that is tried at once, so that it holds up nobody: about 10 us of copying.
pub(super) const NOW_MAX: usize = 64 << 10;

// Which way an operation goes that comes alone, in the mode auto. By ring it is worked on as soon as it is handed over
// if the kernel can do it without waiting, and else wakes nobody until it is done. What the kernel does by a thread in
// any case is no better off there than on the pool: buffered writes on most file systems, syncs, changes of length.
const READ: Alone = Alone::Ring;
/// Reads of a [`Reader`] and of file bodies, two at a time.
pub(super) const AHEAD: Alone = Alone::Ring;
const WRITE: Alone = Alone::Pool;
/// Sync, allocate, set the length, close.
const CHANGE: Alone = Alone::Pool;
pub(super) const OPEN: Alone = Alone::Pool;

/// An open file. It has no position: every read and write names its offset. Cloning shares it.
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
/// # Which way
///
/// What the page cache holds is read at once, up to 64 KiB, without leaving the thread. Everything else is done by
/// io_uring together with what other tasks ask for in the same turn, or on the blocking pool; see
/// [`runtime::Io`](crate::runtime::Io). A runtime thread never waits for the disk. The status of an open file is taken at
/// once, too: file systems of this machine have it in memory, one of the network may ask its server.
///
/// # Errors
///
/// Each is an [`Error`], which names the path and the step and has the number of the error; `?` makes an [`io::Error`] of
/// it that holds it.
///
/// Offsets and lengths that reach beyond 2^63 - 1 are `EINVAL`. Outside of a tokio runtime the step is [`Step::Start`].
///
/// # Cancellation
///
/// Dropping a future asks the kernel to leave the operation undone. **That does not undo it:** it may have been done, in
/// part or in full, or may still be done. The memory and the descriptor that it uses are kept until it has ended.
///
/// # Closing
///
/// When the last clone has been dropped, and the last operation in flight has ended, the descriptor is closed by whoever
/// came last, and nobody learns what that says: use [`close`](Self::close).
#[derive(Clone)]
pub struct File {
    file: Arc<std::fs::File>,
    /// As the caller named it, for messages.
    path: Arc<Path>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.file.as_fd()).field("path", &self.path).finish()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors and cancellation
    ///
    /// As [`OpenOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing, made if there is none and cut to nothing if there is one.
    ///
    /// # Errors and cancellation
    ///
    /// As [`OpenOptions::open`].
    pub async fn create(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over a file, which must have offsets: what they mean to a pipe or a terminal depends on the way. Its position
    /// is neither used nor moved. Errors call it "the open file".
    pub fn from_std(file: std::fs::File) -> Self {
        Self::new(file, Path::new("the open file"))
    }

    pub(super) fn new(file: std::fs::File, path: &Path) -> Self {
        Self { file: Arc::new(file), path: path.into() }
    }

    /// The file of std. A duplicate of the descriptor if the file is still shared.
    ///
    /// # Errors
    ///
    /// `EMFILE` if there is no room for the duplicate.
    pub fn into_std(self) -> io::Result<std::fs::File> {
        Arc::try_unwrap(self.file).or_else(|shared| shared.try_clone())
    }

    /// Reads `len` bytes from `offset` into memory of the pool; fewer only if the file ends before.
    ///
    /// The memory is there from the start: ask for what there is, not for all there may be.
    ///
    /// # Errors
    ///
    /// As [pread(2)](https://man7.org/linux/man-pages/man2/pread.2.html). What was read before it is not given.
    ///
    /// # Cancellation
    ///
    /// Dropping the future loses what was read.
    pub async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.check(Step::Read, offset, len as u64)?;
        let mut lease = pool::lease(len);
        if len <= NOW_MAX && looks_now() {
            consume_budget().await;
            match cached::fill(&mut lease, self.as_fd(), offset, len) {
                Ok(Filled::End) => return Ok(lease.freeze()),
                Ok(Filled::Whole | Filled::Part) => {}
                Err(e) => return Err(self.failed(Step::Read, e)),
            }
        }
        if lease.len() == len {
            return Ok(lease.freeze());
        }
        let read = Read::resume(self.file.clone().into(), offset, len, lease);
        Ok(self.perform(read, READ, Step::Read).await?.0.into_bytes())
    }

    /// Reads several pieces that lie side by side from `offset` on, with one call as a rule. Gives one for each of `lens`;
    /// those that lie behind the end of the file are empty.
    ///
    /// # Errors and cancellation
    ///
    /// As [`read_at`](Self::read_at).
    pub async fn readv(&self, offset: u64, lens: &[usize]) -> Result<Vec<Bytes>> {
        let total = lens.iter().fold(0u64, |total, &len| total.saturating_add(len as u64));
        self.check(Step::Read, offset, total)?;
        if total <= NOW_MAX as u64 {
            let mut whole = self.read_at(offset, total as usize).await?;
            return Ok(lens.iter().map(|&len| whole.split_to(len.min(whole.len()))).collect());
        }
        let read = ReadVectored::new(self.file.clone().into(), offset, lens);
        Ok(self.perform(read, READ, Step::Read).await?.0.into_pieces())
    }

    /// Writes all of `bytes` at `offset`, without a copy on the way to the kernel. They are in the page cache then, not on
    /// the disk: see [`sync_data`](Self::sync_data).
    ///
    /// # Errors
    ///
    /// As [pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html). A part may have been written, such as what
    /// the disk still had room for.
    ///
    /// # Cancellation
    ///
    /// Nothing, a part or all of it may be written, also after the future was dropped.
    pub async fn write_at(&self, offset: u64, bytes: impl Into<Bytes>) -> Result<()> {
        let bytes: Bytes = bytes.into();
        let len = bytes.len() as u64;
        self.check(Step::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let (_, n) = self.perform(Write::new(self.file.clone().into(), offset, bytes), WRITE, Step::Write).await?;
        self.all(n, len)
    }

    /// As [`write_at`](Self::write_at), for several pieces that go one behind the other, with one call if the kernel
    /// takes them at once.
    ///
    /// # Errors and cancellation
    ///
    /// As [`write_at`](Self::write_at).
    pub async fn writev(&self, offset: u64, pieces: impl IntoIterator<Item = Bytes>) -> Result<()> {
        let pieces: Vec<Bytes> = pieces.into_iter().collect();
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.check(Step::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let write = WriteVectored::new(self.file.clone().into(), offset, pieces);
        let (_, n) = self.perform(write, WRITE, Step::Write).await?;
        self.all(n, len)
    }

    /// Waits until what was written is on the disk, with everything that is said about the file. A name that is new is
    /// not: for that its directory must be synced, as [`replace`](super::replace()) does.
    ///
    /// # Errors
    ///
    /// As [fsync(2)](https://man7.org/linux/man-pages/man2/fsync.2.html). **An error is told once** and the pages then
    /// count as written: syncing again proves nothing.
    ///
    /// # Cancellation
    ///
    /// What was written reaches the disk sooner or later, and an error of it may be told to nobody.
    pub async fn sync(&self) -> Result<()> {
        self.perform(Sync::new(self.file.clone().into(), false), CHANGE, Step::Sync).await.map(drop)
    }

    /// As [`sync`](Self::sync), leaving out times and whatever else is not needed to read the contents.
    ///
    /// # Errors and cancellation
    ///
    /// As [`sync`](Self::sync).
    pub async fn sync_data(&self) -> Result<()> {
        self.perform(Sync::new(self.file.clone().into(), true), CHANGE, Step::Sync).await.map(drop)
    }

    /// Makes sure that the disk has room for the range, and that the file reaches its end: writes there fail no more for
    /// want of room. What was not written reads as zeros.
    ///
    /// # Errors
    ///
    /// As [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html): `EOPNOTSUPP` on file systems that
    /// cannot; `EINVAL` for no length.
    ///
    /// # Cancellation
    ///
    /// It may be done, in part or in full.
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check(Step::Allocate, offset, len)?;
        let allocate = Allocate::new(self.file.clone().into(), FallocateFlags::empty(), offset, len);
        self.perform(allocate, CHANGE, Step::Allocate).await.map(drop)
    }

    /// Cuts the file to `len` bytes, or makes it that long with zeros.
    ///
    /// # Errors
    ///
    /// As [ftruncate(2)](https://man7.org/linux/man-pages/man2/ftruncate.2.html).
    ///
    /// # Cancellation
    ///
    /// It may be done or not.
    pub async fn set_len(&self, len: u64) -> Result<()> {
        self.check(Step::SetLength, 0, len)?;
        self.perform(SetLen::new(self.file.clone().into(), len), CHANGE, Step::SetLength).await.map(drop)
    }

    /// What the file is at this moment.
    ///
    /// # Errors
    ///
    /// As [statx(2)](https://man7.org/linux/man-pages/man2/statx.2.html).
    ///
    /// # Cancellation
    ///
    /// Nothing is changed in any case.
    pub async fn metadata(&self) -> Result<Status> {
        if looks_now() {
            let found = call::status(self.as_fd()).map_err(|e| self.failed(Step::Inspect, e))?;
            return Ok(Status::new(&found));
        }
        let (stat, _) = self.perform(Stat::new(self.file.clone().into()), CHANGE, Step::Inspect).await?;
        Ok(Status::new(stat.found().expect("internal: a look that was done")))
    }

    /// Closes the file and tells what that says: on a network file system, whether what was written before has reached
    /// the server. If clones share the file, the same is asked of a duplicate of the descriptor, and theirs stays open.
    ///
    /// # Errors
    ///
    /// As [close(2)](https://man7.org/linux/man-pages/man2/close.2.html). The descriptor is closed all the same.
    ///
    /// # Cancellation
    ///
    /// It is closed all the same, and nobody learns the outcome.
    pub async fn close(self) -> Result<()> {
        let path = Arc::clone(&self.path);
        let fd = OwnedFd::from(self.into_std().map_err(|e| failed(Step::Close, &path, e))?);
        perform(Close::fd(fd), CHANGE, Step::Close, &path).await.map(drop)
    }

    /// Reads the file front to back, from its start; see [`Reader`].
    pub fn reader(&self) -> Reader {
        Reader::new(self.clone())
    }

    /// Writes the file front to back, from its start; see [`Writer`].
    pub fn writer(&self) -> Writer {
        Writer::new(self.clone())
    }

    pub(crate) fn shared(&self) -> &Arc<std::fs::File> {
        &self.file
    }

    /// As the caller named it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn failed(&self, step: Step, error: io::Error) -> Error {
        failed(step, &self.path, error)
    }

    /// That the kernel can name every byte of the range.
    fn check(&self, step: Step, offset: u64, len: u64) -> Result<()> {
        // An offset of -1 is the position of the file to a ring.
        match offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok()) {
            true => Ok(()),
            false => Err(self.failed(step, Errno::INVAL.into())),
        }
    }

    /// That all was written.
    fn all(&self, written: u64, len: u64) -> Result<()> {
        if written == len { Ok(()) } else { Err(self.failed(Step::Write, io::ErrorKind::WriteZero.into())) }
    }

    async fn perform<T: Operation>(&self, op: T, alone: Alone, step: Step) -> Result<(T, u64)> {
        perform(op, alone, step, &self.path).await
    }
}

/// Performs one operation; gives it back and the bytes it has moved.
pub(super) async fn perform<T: Operation>(op: T, alone: Alone, step: Step, path: &Path) -> Result<(T, u64)> {
    let program = run(Box::new(Program::of(op)), alone).await.map_err(|e| failed(Step::Start, path, e))?;
    let (op, moved) = program.into_single();
    Ok((op, moved.map_err(|e| failed(step, path, e))?))
}

pub(super) fn failed(step: Step, path: &Path, error: io::Error) -> Error {
    Error::new(step, path, error)
}
