//! Unix sockets ([unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)): their names, and who is at the other end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use socket2::{SockAddr, SockRef};

/// A stream socket without a name.
pub(crate) fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Two streams that are connected to each other.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// The name behind the NUL that an abstract name begins with.
pub(crate) fn abstract_name(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"\0")
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(match abstract_name(path) {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(path)?,
    })
}

/// Makes a file of type socket, or fails with `EADDRINUSE` whatever has the name.
pub(crate) fn bind_blocking(socket: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    Ok(rustix::net::bind(socket, &address(path)?)?)
}

/// From now on connections are taken in.
pub(crate) fn listen(socket: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?)
}

/// Connects; the kernel answers at once. `EAGAIN` says that the listener's queue is full.
pub(crate) fn connect_blocking(socket: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let address = address(path)?;
    Ok(retry_on_intr(|| rustix::net::connect(socket, &address))?)
}

/// Accepts one connection, [accept4(2)](https://man7.org/linux/man-pages/man2/accept.2.html).
pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let accept = || SockRef::from(&listener).accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let (socket, addr) = loop {
        match accept() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            accepted => break accepted?,
        }
    };
    Ok((socket.into(), name(&addr)?))
}

pub(crate) fn local_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    name(&SockRef::from(socket).local_addr()?)
}

pub(crate) fn peer_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    name(&SockRef::from(socket).peer_addr()?)
}

/// A name as std has it. A peer may choose one of 108 bytes, which the kernel allows and std does not: it counts as
/// unnamed, as nearly all peers are. (rustix panics at such a name, so it is not asked.)
fn name(addr: &SockAddr) -> io::Result<SocketAddr> {
    match addr.as_abstract_namespace() {
        Some(name) => SocketAddr::from_abstract_name(name),
        // An empty path is how std spells "unnamed".
        None => SocketAddr::from_pathname(addr.as_pathname().unwrap_or(Path::new("")))
            .or_else(|_| SocketAddr::from_pathname("")),
    }
}

/// Sets the permission bits of a path.
pub(crate) fn set_mode_blocking(path: &Path, mode: u32) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::chmod(path, Mode::from_raw_mode(mode)))?)
}

/// Device and number of what has the name, and whether it is a socket. Links are not followed.
pub(crate) fn identify_blocking(path: &Path) -> io::Result<((u64, u64), bool)> {
    let status = retry_on_intr(|| rustix::fs::lstat(path))?;
    let is_socket = rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Socket;
    Ok(((status.st_dev, status.st_ino), is_socket))
}

/// Removes a name.
pub(crate) fn remove_blocking(path: &Path) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::unlink(path))?)
}

/// Locks a directory for as long as what is returned is open, [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html).
/// `EWOULDBLOCK`: somebody else has it.
pub(crate) fn lock_directory_blocking(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    retry_on_intr(|| rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive))?;
    Ok(directory)
}
