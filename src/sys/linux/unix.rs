//! Unix sockets ([unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)): names and locks.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use socket2::{SockAddr, SockRef};

use super::lock::Locked;

pub(crate) fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

pub(crate) fn abstract_name(path: &Path) -> Option<&[u8]> {
    path.as_os_str().as_bytes().strip_prefix(b"\0")
}

/// Returns the path that stands for an address, which begins with a NUL if the name is abstract.
pub(crate) fn path(addr: &SocketAddr) -> io::Result<PathBuf> {
    if let Some(path) = addr.as_pathname() {
        return Ok(path.to_owned());
    }
    let name = addr.as_abstract_name().ok_or(Errno::INVAL)?;
    Ok(OsString::from_vec([b"\0", name].concat()).into())
}

fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    Ok(match abstract_name(path) {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(path)?,
    })
}

/// Creates a socket file. Fails with `EADDRINUSE` if the name exists, even if it is not a socket.
pub(crate) fn bind_blocking(socket: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    Ok(rustix::net::bind(socket, &address(path)?)?)
}

pub(crate) fn listen(socket: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?)
}

/// Connects without waiting for the peer. `EAGAIN` means that the listener's queue is full.
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

/// Converts a name to std's type. A peer may choose a name of 108 bytes, which std does not support: it counts as
/// unnamed, like nearly all peers. (rustix panics at such a name and is not used here.)
fn name(addr: &SockAddr) -> io::Result<SocketAddr> {
    match addr.as_abstract_namespace() {
        Some(name) => SocketAddr::from_abstract_name(name),
        // std represents "unnamed" by an empty path.
        None => SocketAddr::from_pathname(addr.as_pathname().unwrap_or(Path::new("")))
            .or_else(|_| SocketAddr::from_pathname("")),
    }
}

pub(crate) fn set_mode_blocking(path: &Path, mode: u32) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::chmod(path, Mode::from_raw_mode(mode)))?)
}

/// Returns device and inode of a name, and whether it is a socket. Does not follow links.
pub(crate) fn identify_blocking(path: &Path) -> io::Result<((u64, u64), bool)> {
    let status = retry_on_intr(|| rustix::fs::lstat(path))?;
    let is_socket = rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Socket;
    Ok(((status.st_dev, status.st_ino), is_socket))
}

pub(crate) fn remove_blocking(path: &Path) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::unlink(path))?)
}

/// Locks a directory. Returns `None` if it is locked elsewhere.
pub(crate) fn lock_directory_blocking(path: &Path) -> io::Result<Option<Locked>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    Locked::try_new(directory)
}
