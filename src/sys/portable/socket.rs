//! Sockets: listening, accepting, shutting down, and the peer's state.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::errno::Errno;
use super::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use super::options::*;
use super::unsupported;

/// Creates a listening TCP socket.
pub(crate) fn listen(addr: SocketAddr, backlog: u32, reuse_port: bool) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // On Windows the option would let another process use the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    set_reuse_port(&socket, reuse_port)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SockAddr::from(addr))?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

#[cfg(unix)]
fn set_reuse_port(socket: &Socket, on: bool) -> io::Result<()> {
    socket.set_reuse_port(on)
}

#[cfg(windows)]
fn set_reuse_port(_: &Socket, on: bool) -> io::Result<()> {
    if on { Err(unsupported("a port has one listener")) } else { Ok(()) }
}

/// Prepares a socket that was created elsewhere: makes it nonblocking.
pub(crate) fn adopt(socket: BorrowedFd<'_>) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    #[cfg(target_vendor = "apple")]
    socket.set_nosigpipe(true)?;
    socket.set_nonblocking(true)
}

/// As [`adopt`], for TCP: also sets `TCP_NODELAY`.
pub(crate) fn adopt_tcp(socket: BorrowedFd<'_>) -> io::Result<()> {
    adopt(socket)?;
    SockRef::from(&socket).set_tcp_nodelay(true)
}

pub(super) fn accept_any(listener: BorrowedFd<'_>) -> io::Result<(Socket, SockAddr)> {
    loop {
        match SockRef::from(&listener).accept() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            accepted => {
                let (socket, addr) = accepted?;
                socket.set_nonblocking(true)?;
                return Ok((socket, addr));
            }
        }
    }
}

/// Accepts one connection of a TCP listener.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, addr) = accept_any(listener)?;
    // Not inherited everywhere. A peer that has already gone refuses options on some systems, and leaves no address.
    let _ = socket.set_tcp_nodelay(true);
    Ok((socket.into(), addr.as_socket().ok_or(Errno::CONNABORTED)?))
}

pub(crate) fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).shutdown(Shutdown::Write)
}

/// Ends both sides. A task that waits to read reads the end of the stream.
pub(crate) fn shutdown_both(socket: BorrowedFd<'_>) {
    // Fails only if the connection is gone already.
    let _ = SockRef::from(&socket).shutdown(Shutdown::Both);
}

/// Returns `false`: the kernel has no such timer here.
pub(crate) fn give_up_after(_: BorrowedFd<'_>, _: Duration) -> bool {
    false
}

/// Checks the peer without waiting.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> PeerActivity {
    let mut byte = [MaybeUninit::uninit()];
    loop {
        return match SockRef::from(&socket).peek(&mut byte) {
            Ok(1..) => PeerActivity::Spoke,
            Ok(0) if has_hung_up(socket) => PeerActivity::Gone,
            Ok(0) => PeerActivity::Ended,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => PeerActivity::Quiet,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => PeerActivity::Gone,
        };
    }
}

/// Returns whether the connection is over: reset, or closed by both ends. Received bytes may still wait.
#[cfg(unix)]
pub(crate) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // A hang-up is reported even if it is not requested.
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| poll(&mut polled, Some(&now))) != Ok(0)
}

/// Returns whether the connection is over: such a socket has no peer any more.
#[cfg(windows)]
pub(crate) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    SockRef::from(&socket).peer_addr().is_err()
}

/// Ends both sides now, and resets the connection when it is closed, so that the peer does not take the received bytes
/// for a complete message. Wakes waiting tasks.
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
    shutdown_both(socket);
}

/// Resets the connection when it is closed, and wakes tasks that wait to read. Does nothing unless the socket is TCP.
pub(crate) fn reset_tcp(socket: BorrowedFd<'_>) {
    if local_addr(&socket).is_ok() {
        let socket = SockRef::from(&socket);
        let _ = socket.set_linger(Some(Duration::ZERO));
        // The end of the written bytes would reach the peer before the reset.
        let _ = socket.shutdown(Shutdown::Read);
    }
}

/// Grows the send buffer so that the kernel takes `bytes` more now. Returns `false` if it does not grow.
pub(crate) fn grow_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> bool {
    /// Allowance for the kernel's overhead besides the bytes.
    const SLACK: usize = 8 << 10;
    let socket = SockRef::from(&socket);
    let Ok(now) = socket.send_buffer_size() else { return false };
    let wanted = now.saturating_add(bytes).saturating_add(SLACK).min(i32::MAX as usize);
    socket.set_send_buffer_size(wanted).is_ok() && socket.send_buffer_size().is_ok_and(|granted| granted > now)
}

/// Does nothing: the port is chosen at bind.
pub(crate) fn bind_without_port(_: &impl AsFd) {}

pub(crate) fn peer_credentials(_: &impl AsFd) -> io::Result<(i32, u32, u32)> {
    Err(unsupported("the credentials of a peer are not queried"))
}
