//! Waiting for sockets; the rest is about files.

#[cfg(windows)]
use std::thread;
use std::time::Duration;

use super::fd::BorrowedFd;
#[cfg(feature = "fs")]
pub(crate) use super::position::*;

/// Pause between two looks at sockets that are full.
#[cfg(windows)]
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until one of `sockets` is writable or has failed, at most for `limit`.
#[cfg(unix)]
pub(crate) fn wait_for_room_blocking<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds: Vec<_> = sockets.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)).collect();
    // Errors are ignored, because the caller tries again anyway.
    let _ = poll(&mut fds, Timespec::try_from(limit).ok().as_ref());
}

/// Waits a little: Windows tells no readiness of a socket outside of the runtime's driver.
#[cfg(windows)]
pub(crate) fn wait_for_room_blocking<'a>(_: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    thread::park_timeout(limit.min(PAUSE));
}
