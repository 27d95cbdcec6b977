//! Sending and receiving. No call waits, and none returns `Interrupted`.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

use socket2::SockRef;

use super::fd::BorrowedFd;
#[cfg(feature = "fs")]
pub(crate) use super::open::*;
use super::retry::uninterrupted;
use super::unsupported;
use crate::counters::{Counter, count};

/// Maximum number of slices per call: hyper offers at most 64.
pub(crate) const IOV_LIMIT: usize = 64;

/// Never waits, even if the socket is blocking. Windows has no such flag; there the sockets are nonblocking.
#[cfg(unix)]
const NO_WAIT: i32 = libc::MSG_DONTWAIT;
#[cfg(windows)]
const NO_WAIT: i32 = 0;

#[cfg(unix)]
const PEEK: i32 = libc::MSG_PEEK;
#[cfg(windows)]
const PEEK: i32 = 2;

/// Suppresses the signal for a peer that has gone. Apple's systems have a socket option instead.
#[cfg(all(unix, not(target_vendor = "apple")))]
const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
#[cfg(any(windows, target_vendor = "apple"))]
const NO_SIGNAL: i32 = 0;

/// Sends `slices` in order. Returns the number of bytes accepted. `more` has no effect.
pub(crate) fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
    debug_assert!(slices.len() <= IOV_LIMIT);
    let socket = SockRef::from(&socket);
    uninterrupted(|| match slices {
        [one] => socket.send_with_flags(one, NO_WAIT | NO_SIGNAL),
        many => socket.send_vectored_with_flags(many, NO_WAIT | NO_SIGNAL),
    })
}

/// As [`send`], for slices of `len` bytes, which may be copied first.
pub(crate) fn send_joined(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], _len: usize) -> io::Result<usize> {
    send(socket, slices, false)
}

pub(crate) fn send_file(_: BorrowedFd<'_>, _: BorrowedFd<'_>, _: u64, _: usize) -> io::Result<usize> {
    Err(unsupported("files are not sent inside the kernel"))
}

/// Receives into `spare`, whose first bytes are then initialised. With `peeks` the bytes stay in the socket.
pub(super) fn receive_uninit(socket: BorrowedFd<'_>, spare: &mut [MaybeUninit<u8>], peeks: bool) -> io::Result<usize> {
    let flags = NO_WAIT | if peeks { PEEK } else { 0 };
    let socket = SockRef::from(&socket);
    uninterrupted(|| {
        count(Counter::Reads, 1);
        socket.recv_with_flags(spare, flags)
    })
}
