//! Credentials of a peer.

use std::io;

use crate::sys::fd::AsFd;
use crate::sys::socket;

/// Credentials of the peer of a Unix socket when the connection was made, as verified by the kernel (`SO_PEERCRED`,
/// [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html)). Other systems than Linux report
/// `ErrorKind::Unsupported`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// 0 if it is not visible.
    pid: i32,
    uid: u32,
    gid: u32,
}

impl Credentials {
    /// Returns the process ID; `None` if not visible from this process's namespace. It may have been
    /// reused: decide by user and group.
    pub fn pid(&self) -> Option<i32> {
        Some(self.pid).filter(|&pid| pid != 0)
    }

    /// Returns the effective user ID.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the effective group ID.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    pub(in crate::net) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let (pid, uid, gid) = socket::peer_credentials(socket)?;
        Ok(Self { pid, uid, gid })
    }
}
