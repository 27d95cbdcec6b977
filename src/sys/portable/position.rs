//! Moving bytes at a file's position, or where there are no positions: pipes, terminals. Calls **may wait**.

use std::io::{self, Read, Seek, SeekFrom, Write};
#[cfg(windows)]
use std::thread;
use std::time::Duration;

use super::fd::{BorrowedFd, OwnedFd};
use super::flags::PollFlags;
use super::retry::uninterrupted;
use super::{borrow, unsupported};

/// Bytes that a writable pipe accepts without waiting.
pub(crate) const PIPE_BUF: usize = 512;

/// Pause between two looks at a descriptor that is not ready.
#[cfg(windows)]
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until a descriptor is ready or has failed, at most for `limit`. Files are always ready.
#[cfg(unix)]
pub(crate) fn wait_blocking(fd: BorrowedFd<'_>, events: PollFlags, limit: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags as Events, Timespec, poll};
    let wanted = if events == PollFlags::IN { Events::IN } else { Events::OUT };
    let limit = Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match poll(&mut [PollFd::from_borrowed_fd(fd, wanted)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Waits for a short time: Windows does not report the readiness of a handle.
#[cfg(windows)]
pub(crate) fn wait_blocking(_: BorrowedFd<'_>, _: PollFlags, limit: Duration) -> io::Result<bool> {
    thread::park_timeout(limit.min(PAUSE));
    Ok(true)
}

/// Returns whether a write may wait after a part of its bytes: every file that is not regular depends on its reader.
pub(crate) fn is_stream(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(!borrow::file(fd).metadata()?.is_file())
}

/// Reads at the file position and advances it.
pub(crate) fn read_next_blocking(file: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    uninterrupted(|| (&*borrow::file(file)).read(buf))
}

/// Writes at the file position and advances it.
pub(crate) fn write_next_blocking(file: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    uninterrupted(|| (&*borrow::file(file)).write(bytes))
}

pub(crate) fn splice(
    _: (BorrowedFd<'_>, Option<u64>),
    _: (BorrowedFd<'_>, Option<u64>),
    _: usize,
) -> io::Result<usize> {
    Err(unsupported("bytes are not moved inside the kernel"))
}

pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Err(unsupported("bytes are not moved inside the kernel"))
}

pub(crate) fn set_pipe_size(_: BorrowedFd<'_>, _: usize) -> io::Result<()> {
    Err(unsupported("the size of a pipe is not set"))
}

pub(crate) fn pipe_size(_: BorrowedFd<'_>) -> io::Result<usize> {
    Err(unsupported("the size of a pipe is not known"))
}

/// Sets the file position, from the start, for all descriptors that share it.
pub(crate) fn set_position(file: BorrowedFd<'_>, at: u64) -> io::Result<()> {
    (&*borrow::file(file)).seek(SeekFrom::Start(at)).map(drop)
}

/// Returns the file position. Fails if the file has none, and so no offsets.
pub(crate) fn position(file: BorrowedFd<'_>) -> io::Result<u64> {
    (&*borrow::file(file)).stream_position()
}

#[cfg(unix)]
pub(crate) fn appends(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_getfl(file)?.contains(rustix::fs::OFlags::APPEND))
}

/// Windows does not report this, so every file counts as one that may.
#[cfg(windows)]
pub(crate) fn appends(_: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(true)
}
