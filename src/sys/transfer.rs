//! Moving bytes where a file has a position or no positions at all: pipes, sockets, terminals. **They may wait** where
//! their names do not say otherwise, and none returns `EINTR`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags};

use super::signal::without_sigpipe;

/// What a pipe takes without waiting once it is ready to be written, [pipe(7)](https://man7.org/linux/man-pages/man7/pipe.7.html).
pub(crate) const PIPE_BUF: usize = 4096;

/// Waits until a descriptor is ready or has failed, at most for `limit`, [poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html).
/// Files are always ready. `false`: not yet, or a signal came in between.
pub(crate) fn wait_blocking(fd: BorrowedFd<'_>, events: PollFlags, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Waits until one of `sockets` has room or has failed, at most for `limit`. Signals may end it earlier.
pub(crate) fn wait_for_room_blocking<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    let mut fds: Vec<_> = sockets.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)).collect();
    // Beyond the limit of a timespec is as good as forever, and no error is of use: the caller tries again anyway.
    let limit = Timespec::try_from(limit).ok();
    let _ = rustix::event::poll(&mut fds, limit.as_ref());
}

/// Whether writing may wait in the middle of it: what is no regular file takes bytes when somebody else takes them out.
pub(crate) fn is_stream(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) != FileType::RegularFile)
}

/// Reads at the position of the file, and moves it.
pub(crate) fn read_next_blocking(file: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(file, &mut *buf))?)
}

/// Writes at the position of the file, and moves it.
pub(crate) fn write_next_blocking(file: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::write(file, bytes))?)
}

/// Moves up to `len` bytes, one side a pipe, [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html). Without an
/// offset the position of the file counts, and is moved. Waits for no pipe: `WouldBlock`.
pub(crate) fn splice(
    (from, mut from_at): (BorrowedFd<'_>, Option<u64>),
    (to, mut to_at): (BorrowedFd<'_>, Option<u64>),
    len: usize,
) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK;
    let splice = || retry_on_intr(|| rustix::pipe::splice(from, from_at.as_mut(), to, to_at.as_mut(), len, flags));
    Ok(without_sigpipe(splice)?)
}

/// A pipe that never waits: the end that is read and the end that is written.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

/// Asks that a pipe hold `bytes`, `F_SETPIPE_SZ` of [fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl.2.html). Fails
/// beyond `pipe-max-size`, and where the user has more pages in pipes than `pipe-user-pages-soft`.
pub(crate) fn set_pipe_size(pipe: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    rustix::pipe::fcntl_setpipe_size(pipe, bytes)?;
    Ok(())
}

/// What a pipe holds, in bytes, if its pages are full.
pub(crate) fn pipe_size(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(rustix::pipe::fcntl_getpipe_size(pipe)?)
}

/// Puts the position of a file at `at`, from its start. Of all descriptors that share it.
pub(crate) fn set_position(file: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    rustix::fs::seek(file, SeekFrom::Start(at))?;
    Ok(())
}

/// The position of a file. `ESPIPE` if it has none, and so no offsets either.
pub(crate) fn position(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::tell(file)?)
}

/// Whether everything that is written goes to the end of the file.
pub(crate) fn appends(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_getfl(file)?.contains(OFlags::APPEND))
}
