//! Moving bytes at a file's position, or where there are no positions: pipes, sockets, terminals. Calls **may wait**
//! unless their names say otherwise, and none returns `EINTR`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags};

use super::signal::without_sigpipe;

/// Bytes that a writable pipe accepts without waiting, [pipe(7)](https://man7.org/linux/man-pages/man7/pipe.7.html).
pub(crate) const PIPE_BUF: usize = 4096;

/// Waits until a descriptor is ready or has failed, at most for `limit`. Files are always ready. Returns `false` on
/// timeout or after a signal. [poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html)
pub(crate) fn wait_blocking(fd: BorrowedFd<'_>, events: PollFlags, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Waits until one of `sockets` is writable or has failed, at most for `limit`. Signals may end the wait earlier.
pub(crate) fn wait_for_room_blocking<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    let mut fds: Vec<_> = sockets.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)).collect();
    // A limit above the range of a timespec means forever. Errors are ignored, because the caller tries again anyway.
    let limit = Timespec::try_from(limit).ok();
    let _ = rustix::event::poll(&mut fds, limit.as_ref());
}

/// Returns whether a write may wait after a part of its bytes: every file that is not regular depends on its reader.
pub(crate) fn is_stream(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) != FileType::RegularFile)
}

/// Reads at the file position and advances it.
pub(crate) fn read_next_blocking(file: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(file, &mut *buf))?)
}

/// Writes at the file position and advances it.
pub(crate) fn write_next_blocking(file: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::write(file, bytes))?)
}

/// Moves up to `len` bytes, one side a pipe, [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html). Without
/// an offset, uses and advances the file position. Returns `WouldBlock` instead of waiting for a pipe.
pub(crate) fn splice(
    (from, mut from_at): (BorrowedFd<'_>, Option<u64>),
    (to, mut to_at): (BorrowedFd<'_>, Option<u64>),
    len: usize,
) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK;
    let splice = || retry_on_intr(|| rustix::pipe::splice(from, from_at.as_mut(), to, to_at.as_mut(), len, flags));
    Ok(without_sigpipe(splice)?)
}

/// Creates a nonblocking pipe: the read end and the write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

/// Sets the capacity of a pipe, `F_SETPIPE_SZ` of [fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl.2.html). Fails
/// above `pipe-max-size`, and if the user's pipes exceed `pipe-user-pages-soft`.
pub(crate) fn set_pipe_size(pipe: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    rustix::pipe::fcntl_setpipe_size(pipe, bytes)?;
    Ok(())
}

pub(crate) fn pipe_size(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(rustix::pipe::fcntl_getpipe_size(pipe)?)
}

/// Sets the file position, from the start, for all descriptors that share it.
pub(crate) fn set_position(file: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    rustix::fs::seek(file, SeekFrom::Start(at))?;
    Ok(())
}

/// Returns the file position. Fails with `ESPIPE` if the file has none, and so no offsets.
pub(crate) fn position(file: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::tell(file)?)
}

pub(crate) fn appends(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_getfl(file)?.contains(OFlags::APPEND))
}
