//! Descriptors registered with the runtime's driver, and their readiness.

#![allow(unsafe_code)]

use std::io;

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use super::fd::OwnedFd;

/// A descriptor whose readiness the runtime's driver reports.
pub(crate) type Watched = AsyncFd<OwnedFd>;

/// Registers a socket with the runtime's driver. Panics outside a tokio runtime with I/O enabled.
#[track_caller]
pub(crate) fn watch(socket: OwnedFd, interest: Interest) -> io::Result<Watched> {
    // SAFETY: an `OwnedFd` stays open and the same while the `AsyncFd` owns it, which only shares references to it.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// Returns whether no more bytes will arrive at a socket that is ready to read.
#[inline]
pub(crate) fn is_read_closed(ready: &AsyncFdReadyGuard<'_, OwnedFd>) -> bool {
    ready.ready().is_read_closed()
}

/// Runs `attempt`, and clears the readiness that led to it if `attempt` also returns `true`: the socket is empty.
#[inline]
pub(crate) fn attempt<R>(
    mut ready: AsyncFdReadyGuard<'_, OwnedFd>,
    attempt: impl FnOnce() -> (io::Result<R>, bool),
) -> io::Result<R> {
    let (result, is_empty) = attempt();
    if is_empty {
        ready.clear_ready();
    }
    result
}
