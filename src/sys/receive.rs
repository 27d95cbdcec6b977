//! Receiving into the buffers of tokio and hyper. No call waits, and none returns `EINTR`.

#![allow(unsafe_code)]

use std::io;

use super::call::receive_uninit;
use super::fd::BorrowedFd;

/// Receives into the unfilled part of `buf`; `Ok(0)` is the end of the stream.
pub(crate) fn receive(socket: BorrowedFd<'_>, buf: &mut tokio::io::ReadBuf<'_>) -> io::Result<usize> {
    receive_by(socket, buf, false)
}

/// As [`receive`], but the bytes stay in the socket (`MSG_PEEK`).
pub(crate) fn peek(socket: BorrowedFd<'_>, buf: &mut tokio::io::ReadBuf<'_>) -> io::Result<usize> {
    receive_by(socket, buf, true)
}

fn receive_by(socket: BorrowedFd<'_>, buf: &mut tokio::io::ReadBuf<'_>, peeks: bool) -> io::Result<usize> {
    // SAFETY: `receive_uninit` only ever writes initialised bytes into the slice.
    let spare = unsafe { buf.unfilled_mut() };
    let n = receive_uninit(socket, spare, peeks)?;
    // SAFETY: the kernel has initialised the first `n` bytes of the unfilled part.
    unsafe { buf.assume_init(n) };
    buf.advance(n);
    Ok(n)
}

pub(crate) fn receive_cursor(socket: BorrowedFd<'_>, cursor: &mut hyper::rt::ReadBufCursor<'_>) -> io::Result<usize> {
    // SAFETY: `receive_uninit` only ever writes initialised bytes into the slice.
    let spare = unsafe { cursor.as_mut() };
    let n = receive_uninit(socket, spare, false)?;
    // SAFETY: the kernel has initialised the first `n` bytes of the cursor.
    unsafe { cursor.advance(n) };
    Ok(n)
}
