//! Unix sockets: names and locks.

use std::fs;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::fd::{AsFd, BorrowedFd, OwnedFd};
use super::lock::Locked;
use super::socket;

pub(crate) fn stream() -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    for socket in [&one, &other] {
        socket.set_nonblocking(true)?;
    }
    Ok((one.into(), other.into()))
}

/// Abstract names are Linux's alone.
pub(crate) fn abstract_name(_: &Path) -> Option<&[u8]> {
    None
}

pub(crate) fn path(addr: &SocketAddr) -> io::Result<PathBuf> {
    Ok(addr.as_pathname().ok_or(io::ErrorKind::InvalidInput)?.to_owned())
}

/// Creates a socket file. Fails with `EADDRINUSE` if the name exists, even if it is not a socket.
pub(crate) fn bind_blocking(socket: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    SockRef::from(&socket).bind(&SockAddr::unix(path)?)
}

pub(crate) fn listen(socket: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    SockRef::from(&socket).listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}

/// Connects without waiting for the peer. `EAGAIN` means that the listener's queue is full.
pub(crate) fn connect_blocking(socket: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    SockRef::from(&socket).connect(&SockAddr::unix(path)?)
}

pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (socket, addr) = socket::accept_any(listener)?;
    Ok((socket.into(), name(&addr)?))
}

pub(crate) fn local_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    name(&SockRef::from(socket).local_addr()?)
}

pub(crate) fn peer_addr(socket: &impl AsFd) -> io::Result<SocketAddr> {
    name(&SockRef::from(socket).peer_addr()?)
}

/// Converts a name to std's type. A name that std does not support counts as unnamed.
fn name(addr: &SockAddr) -> io::Result<SocketAddr> {
    // std represents "unnamed" by an empty path.
    SocketAddr::from_pathname(addr.as_pathname().unwrap_or(Path::new(""))).or_else(|_| SocketAddr::from_pathname(""))
}

pub(crate) fn set_mode_blocking(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Returns device and inode of a name, and whether it is a socket. Does not follow links.
pub(crate) fn identify_blocking(path: &Path) -> io::Result<((u64, u64), bool)> {
    let found = fs::symlink_metadata(path)?;
    Ok(((found.dev(), found.ino()), found.file_type().is_socket()))
}

pub(crate) fn remove_blocking(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Locks a directory. Returns `None` if it is locked elsewhere.
pub(crate) fn lock_directory_blocking(path: &Path) -> io::Result<Option<Locked>> {
    Locked::try_new(File::open(path)?.into())
}
