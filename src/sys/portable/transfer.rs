//! Waiting for sockets; the rest is about files.

use std::thread;
use std::time::Duration;

use super::fd::BorrowedFd;
#[cfg(feature = "fs")]
pub(crate) use super::position::*;

/// Pause between two looks at sockets that are full.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until one of `sockets` may be writable, at most for `limit`.
pub(crate) fn wait_for_room_blocking<'a>(_: impl Iterator<Item = BorrowedFd<'a>>, limit: Duration) {
    thread::park_timeout(limit.min(PAUSE));
}
