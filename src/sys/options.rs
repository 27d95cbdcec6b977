//! Options and addresses of sockets that all systems have.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::errno::Errno;
use super::fd::{AsFd, BorrowedFd};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerActivity {
    Quiet,
    Spoke,
    /// No more bytes will arrive. The peer may still read.
    Ended,
    /// The connection is over: reset, or closed by both ends.
    Gone,
}

/// Makes the kernel probe a peer that has been silent for `idle`, four times, and then end the connection
/// (`SO_KEEPALIVE`, `TCP_KEEPIDLE`, [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)). Accepted sockets
/// inherit the options.
pub(crate) fn keep_alive(socket: BorrowedFd<'_>, idle: Duration) -> io::Result<()> {
    // In whole seconds, up to the kernel's maximum.
    let seconds = |duration: Duration| Duration::from_secs(duration.as_secs().clamp(1, 32_767));
    let times = TcpKeepalive::new().with_time(seconds(idle)).with_interval(seconds(idle / 4)).with_retries(4);
    SockRef::from(&socket).set_tcp_keepalive(&times)
}

/// Returns whether small segments are sent at once (`TCP_NODELAY`).
pub(crate) fn nodelay(socket: BorrowedFd<'_>) -> io::Result<bool> {
    SockRef::from(&socket).tcp_nodelay()
}

pub(crate) fn set_nodelay(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_nodelay(on)
}

/// Returns the time that closing the socket waits for unsent bytes (`SO_LINGER`).
pub(crate) fn linger(socket: BorrowedFd<'_>) -> io::Result<Option<Duration>> {
    SockRef::from(&socket).linger()
}

pub(crate) fn set_linger(socket: BorrowedFd<'_>, time: Option<Duration>) -> io::Result<()> {
    SockRef::from(&socket).set_linger(time)
}

/// Returns whether closing the socket resets the connection and discards unsent bytes (`SO_LINGER` of zero).
pub(crate) fn discards_at_close(socket: BorrowedFd<'_>) -> bool {
    linger(socket).is_ok_and(|time| time == Some(Duration::ZERO))
}

pub(crate) fn local_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    let addr = SockRef::from(&socket.as_fd()).local_addr()?;
    addr.as_socket().ok_or_else(|| io::Error::from(Errno::AFNOSUPPORT))
}

pub(crate) fn peer_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    let addr = SockRef::from(&socket.as_fd()).peer_addr()?;
    addr.as_socket().ok_or_else(|| io::Error::from(Errno::AFNOSUPPORT))
}
