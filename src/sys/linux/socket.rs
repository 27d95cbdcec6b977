//! Sockets: listening, accepting, shutting down, and the peer's state.

#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

pub(crate) use super::options::*;

/// Creates a listening TCP socket with `TCP_NODELAY`. Accepted sockets inherit the option
/// ([tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)), so accepted connections need no call for it.
pub(crate) fn listen(addr: SocketAddr, backlog: u32, reuse_port: bool) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SockAddr::from(addr))?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Prepares a socket that was created elsewhere: makes it nonblocking.
pub(crate) fn adopt(socket: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&socket).set_nonblocking(true)
}

/// As [`adopt`], for TCP: also sets `TCP_NODELAY`.
pub(crate) fn adopt_tcp(socket: BorrowedFd<'_>) -> io::Result<()> {
    adopt(socket)?;
    SockRef::from(&socket).set_tcp_nodelay(true)
}

/// Accepts one connection of a TCP listener, [accept4(2)](https://man7.org/linux/man-pages/man2/accept.2.html).
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, addr) = retry_on_intr(|| rustix::net::acceptfrom_with(listener, flags))?;
    let peer = addr.and_then(|a| SocketAddr::try_from(a).ok());
    // A peer that has already gone leaves no address.
    Ok((socket, peer.ok_or(Errno::CONNABORTED)?))
}

pub(crate) fn shutdown_write(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?)
}

/// Ends both sides. A task that waits to read reads the end of the stream.
pub(crate) fn shutdown_both(socket: BorrowedFd<'_>) {
    // Fails only if the connection is gone already.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Makes the kernel end the connection if the peer takes no sent bytes for `patience` (`TCP_USER_TIMEOUT`). Returns
/// `false` if the socket is not TCP: the kernel has no such timer then.
pub(crate) fn give_up_after(socket: BorrowedFd<'_>, patience: Duration) -> bool {
    SockRef::from(&socket).set_tcp_user_timeout(Some(patience)).is_ok()
}

/// Checks the peer without waiting ([recv(2)](https://man7.org/linux/man-pages/man2/recv.2.html), `MSG_PEEK`).
pub(crate) fn peer(socket: BorrowedFd<'_>) -> PeerActivity {
    let mut byte = [0];
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    match retry_on_intr(|| rustix::net::recv(socket, &mut byte, flags)) {
        Ok((1.., _)) => PeerActivity::Spoke,
        Ok((0, _)) if has_hung_up(socket) => PeerActivity::Gone,
        Ok((0, _)) => PeerActivity::Ended,
        Err(Errno::AGAIN) => PeerActivity::Quiet,
        Err(_) => PeerActivity::Gone,
    }
}

/// Returns whether the connection is over: reset, or closed by both ends. Received bytes may still wait
/// ([poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html), `POLLHUP`).
pub(crate) fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    // A hang-up is reported even if it is not requested.
    let mut polled = [rustix::event::PollFd::from_borrowed_fd(socket, rustix::event::PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    retry_on_intr(|| rustix::event::poll(&mut polled, Some(&now))) != Ok(0)
}

/// Resets the connection (`connect` to no address, [connect(2)](https://man7.org/linux/man-pages/man2/connect.2.html)),
/// so that the peer does not regard the received bytes as a complete message. Wakes waiting tasks. Unix sockets cannot
/// be reset and end normally, [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html).
pub(crate) fn reset(socket: BorrowedFd<'_>) {
    if rustix::net::connect_unspec(socket).is_err() {
        shutdown_both(socket);
    }
}

/// As [`reset`], but does nothing unless the socket is TCP.
pub(crate) fn reset_tcp(socket: BorrowedFd<'_>) {
    if local_addr(&socket).is_ok() {
        reset(socket);
    }
}

/// Grows the send buffer (`SO_SNDBUF`, [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)) so that the
/// kernel takes `bytes` more now, and lifts the limit on unsent bytes (`TCP_NOTSENT_LOWAT`). Returns `false` if the
/// buffer is as large as this process may make it. The buffer no longer adapts to the connection afterwards.
pub(crate) fn grow_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> bool {
    /// Allowance for the kernel's overhead besides the bytes.
    const SLACK: usize = 8 << 10;
    let socket = SockRef::from(&socket);
    // Fails if the socket is not TCP, which has no such limit.
    let _ = socket.set_tcp_notsent_lowat(u32::MAX);
    // The kernel reports, and grants, twice the requested size.
    let Ok(now) = socket.send_buffer_size() else { return false };
    let wanted = (now / 2).saturating_add(bytes).saturating_add(SLACK);
    if set_send_buffer_force(socket.as_fd(), wanted) {
        return true;
    }
    // `SO_SNDBUF` would also reduce the buffer to the limit.
    let granted = wanted.min(send_buffer_limit());
    granted > now / 2 && socket.set_send_buffer_size(granted).is_ok()
}

/// As `SO_SNDBUF`, but beyond the system's limit: requires `CAP_NET_ADMIN`.
fn set_send_buffer_force(socket: BorrowedFd<'_>, bytes: usize) -> bool {
    let Ok(bytes) = libc::c_int::try_from(bytes) else { return false };
    let (fd, len) = (socket.as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option is an `int`, which outlives the call.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, (&raw const bytes).cast(), len) };
    done == 0
}

/// The largest send buffer that a process may request, `net.core.wmem_max`.
fn send_buffer_limit() -> usize {
    /// The kernel's default, used if the limit cannot be read.
    const DEFAULT: usize = 212_992;
    static LIMIT: OnceLock<usize> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/sys/net/core/wmem_max").ok()?.trim().parse().ok();
    *LIMIT.get_or_init(|| read().unwrap_or(DEFAULT))
}

/// Defers the choice of a port from bind to connect, which allows more ports (`IP_BIND_ADDRESS_NO_PORT`,
/// [ip(7)](https://man7.org/linux/man-pages/man7/ip.7.html), Linux 4.2; IPv6 sockets accept it too).
#[cfg(feature = "client")]
pub(crate) fn bind_without_port(socket: &impl AsFd) {
    let on: libc::c_int = 1;
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option is an `int`, which outlives the call.
    unsafe { libc::setsockopt(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, (&raw const on).cast(), len) };
}

/// Returns process, user and group of the peer when it connected or listened (`SO_PEERCRED`,
/// [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)). An invisible process is 0, which rustix's type cannot
/// represent.
pub(crate) fn peer_credentials(socket: &impl AsFd) -> io::Result<(i32, u32, u32)> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `who` has the size `len`, any bits are a valid `ucred`, and both outlive the call.
    let answer =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len) };
    if answer == 0 { Ok((who.pid, who.uid, who.gid)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::time::Instant;

    fn becomes(socket: &impl AsFd, expected: PeerActivity) {
        let start = Instant::now();
        while peer(socket.as_fd()) != expected {
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}, not {expected:?}", peer(socket.as_fd()));
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_other_end_of_tcp_is_quiet_has_spoken_has_ended_or_is_gone() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let (mut client, mut ours) = pair();
        becomes(&ours, PeerActivity::Quiet);
        client.write_all(b"ab").unwrap();
        becomes(&ours, PeerActivity::Spoke);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(peer(ours.as_fd()), PeerActivity::Spoke, "unread bytes come first");
        ours.read_exact(&mut [0; 2]).unwrap();
        becomes(&ours, PeerActivity::Ended);
        // A closed peer looks the same until something is sent to it.
        drop(client);
        assert_eq!(peer(ours.as_fd()), PeerActivity::Ended);
        ours.write_all(b"a").unwrap();
        becomes(&ours, PeerActivity::Gone);

        let (client, ours) = pair();
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        becomes(&ours, PeerActivity::Gone);
    }

    #[test]
    fn a_unix_socket_that_is_closed_is_gone_at_once() {
        let (client, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer(ours.as_fd()), PeerActivity::Quiet);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(peer(ours.as_fd()), PeerActivity::Ended);
        drop(client);
        assert_eq!(peer(ours.as_fd()), PeerActivity::Gone);
    }
}
