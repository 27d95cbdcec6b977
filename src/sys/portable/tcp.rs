//! State and send options of a TCP connection, as far as every system has them.

use std::io;
use std::num::NonZeroU64;

use socket2::SockRef;

use super::fd::BorrowedFd;
use super::tcp_info::TcpInfo;
use super::unsupported;

pub(crate) fn info(_: BorrowedFd<'_>) -> Option<TcpInfo> {
    None
}

pub(crate) fn unconfirmed(_: BorrowedFd<'_>) -> Option<usize> {
    None
}

pub(crate) fn unread(_: BorrowedFd<'_>) -> Option<usize> {
    None
}

pub(crate) fn set_not_sent_low(_: BorrowedFd<'_>, _: Option<u32>) -> io::Result<()> {
    Err(unsupported("unsent bytes in the kernel have no limit of their own"))
}

pub(crate) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    SockRef::from(&socket).set_send_buffer_size(bytes)
}

pub(crate) fn free_send_buffer(_: BorrowedFd<'_>) -> io::Result<()> {
    Err(unsupported("a send buffer with a limit keeps it"))
}

pub(crate) fn set_pacing(_: BorrowedFd<'_>, _: Option<NonZeroU64>) -> io::Result<()> {
    Err(unsupported("the kernel paces no connection"))
}

pub(crate) fn congestion(_: BorrowedFd<'_>) -> io::Result<String> {
    Err(unsupported("congestion control is not chosen"))
}

pub(crate) fn set_congestion(_: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!("congestion control `{name}`: portable build: it is not chosen"),
    ))
}
