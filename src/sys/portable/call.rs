//! Sending and receiving. No call waits, and none returns `Interrupted`.

#![allow(unsafe_code)]

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

/// The kernel raises no signal for a peer that has gone. Apple's has an option of the socket instead.
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

/// Receives into the unfilled part of `buf`; `Ok(0)` is the end of the stream.
pub(crate) fn receive(socket: BorrowedFd<'_>, buf: &mut tokio::io::ReadBuf<'_>) -> io::Result<usize> {
    receive_by(socket, buf, NO_WAIT)
}

/// As [`receive`], but the bytes stay in the socket.
pub(crate) fn peek(socket: BorrowedFd<'_>, buf: &mut tokio::io::ReadBuf<'_>) -> io::Result<usize> {
    receive_by(socket, buf, NO_WAIT | PEEK)
}

fn receive_by(socket: BorrowedFd<'_>, buf: &mut tokio::io::ReadBuf<'_>, flags: i32) -> io::Result<usize> {
    // SAFETY: `receive_uninit` only ever writes initialised bytes into the slice.
    let spare = unsafe { buf.unfilled_mut() };
    let n = receive_uninit(socket, spare, flags)?;
    // SAFETY: the kernel has initialised the first `n` bytes of the unfilled part.
    unsafe { buf.assume_init(n) };
    buf.advance(n);
    Ok(n)
}

pub(crate) fn receive_cursor(socket: BorrowedFd<'_>, cursor: &mut hyper::rt::ReadBufCursor<'_>) -> io::Result<usize> {
    // SAFETY: `receive_uninit` only ever writes initialised bytes into the slice.
    let spare = unsafe { cursor.as_mut() };
    let n = receive_uninit(socket, spare, NO_WAIT)?;
    // SAFETY: the kernel has initialised the first `n` bytes of the cursor.
    unsafe { cursor.advance(n) };
    Ok(n)
}

fn receive_uninit(socket: BorrowedFd<'_>, spare: &mut [MaybeUninit<u8>], flags: i32) -> io::Result<usize> {
    let socket = SockRef::from(&socket);
    uninterrupted(|| {
        count(Counter::Reads, 1);
        socket.recv_with_flags(spare, flags)
    })
}
