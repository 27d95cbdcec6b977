//! Options and addresses of sockets.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// A TCP socket that listens, with `TCP_NODELAY` set: accepted sockets inherit it
/// ([tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)), so no accepted connection pays a call for it.
pub(crate) fn listen(addr: SocketAddr, backlog: u32, reuse_port: bool) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SockAddr::from(addr))?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Makes a socket that came from elsewhere fit to be ours: it never blocks and has `TCP_NODELAY`.
pub(crate) fn adopt(socket: BorrowedFd<'_>) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)
}

/// Accepts one connection, [accept4(2)](https://man7.org/linux/man-pages/man2/accept.2.html).
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, addr) = retry_on_intr(|| rustix::net::acceptfrom_with(listener, flags))?;
    let peer = addr.and_then(|a| SocketAddr::try_from(a).ok());
    // A peer that is gone already leaves no address behind.
    Ok((socket, peer.ok_or(Errno::CONNABORTED)?))
}

/// Ends the sending side; the peer reads the end of the stream after what was sent.
pub(crate) fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?)
}

/// Makes the coming close a reset (`SO_LINGER` 0): the peer must not take what it has for the whole.
pub(crate) fn reset_on_close(socket: BorrowedFd<'_>) {
    let _ = SockRef::from(&socket).set_linger(Some(std::time::Duration::ZERO));
}

pub(crate) fn local_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    let addr = SockRef::from(socket).local_addr()?;
    addr.as_socket().ok_or_else(|| io::Error::from(Errno::AFNOSUPPORT))
}

pub(crate) fn peer_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    let addr = SockRef::from(socket).peer_addr()?;
    addr.as_socket().ok_or_else(|| io::Error::from(Errno::AFNOSUPPORT))
}

/// The kernel's own note of an error on this socket (`SO_ERROR`), cleared by asking.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> Option<io::Error> {
    SockRef::from(&socket).take_error().ok().flatten()
}
