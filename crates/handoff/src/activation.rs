//! Listeners that a service manager has passed to this process:
//! [sd_listen_fds(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_listen_fds.html).

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::ipv6_v6only;
use rustix::net::{SocketAddrUnix, getsockname};

/// Whether this process has taken its descriptors. Their numbers are in the environment, which stays as it is.
static TAKEN: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
enum Address {
    Tcp { addr: SocketAddr, only_v6: bool },
    Unix(Option<PathBuf>),
}

#[derive(Debug)]
struct Passed {
    /// Several may have the same one.
    name: String,
    address: Address,
    socket: OwnedFd,
}

/// The listeners that are not claimed yet.
#[derive(Debug, Default)]
pub(crate) struct Activation(Vec<Passed>);

impl Activation {
    /// Takes the listeners that were passed to this process. There are none the second time.
    pub(crate) fn take() -> io::Result<Self> {
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Ok(Self::default());
        }
        let failed = |error| io::Error::new(io::ErrorKind::InvalidData, format!("LISTEN_PID and LISTEN_FDS: {error}"));
        let found = sd_listen_fds::get().map_err(|e| failed(e.to_string()))?;
        let mut listeners = Vec::new();
        for (name, socket) in found {
            let socket = socket.into_std();
            match address(&socket) {
                Some(address) => {
                    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
                    listeners.push(Passed { name: name.unwrap_or_default(), address, socket });
                }
                // The program may look for it.
                None => drop(socket.into_raw_fd()),
            }
        }
        Ok(Self(listeners))
    }

    /// Returns the TCP listener with this `name`, or one that listens on one of `addrs`.
    pub(crate) fn tcp(&mut self, name: &str, addrs: &[SocketAddr]) -> Option<OwnedFd> {
        self.claim(name, |address| match *address {
            Address::Tcp { addr, only_v6 } => {
                // A socket for both versions of IP has all addresses of the older one, too.
                let has_v4 = addr.is_ipv6() && addr.ip().is_unspecified() && !only_v6;
                let as_v4 = has_v4.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port())));
                Some(addrs.iter().any(|wanted| *wanted == addr || Some(*wanted) == as_v4))
            }
            Address::Unix(_) => None,
        })
    }

    /// Returns the listener on a Unix socket with this `name`, or the one at `path`.
    pub(crate) fn unix(&mut self, name: &str, path: &Path) -> Option<OwnedFd> {
        self.claim(name, |address| match address {
            Address::Tcp { .. } => None,
            Address::Unix(bound) => Some(bound.as_deref() == Some(path)),
        })
    }

    /// Returns the names of the listeners that are left.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|passed| &*passed.name)
    }

    /// `fits` returns whether a listener has a wanted address; `None` if it is of another kind.
    fn claim(&mut self, name: &str, fits: impl Fn(&Address) -> Option<bool>) -> Option<OwnedFd> {
        let listeners = self.0.iter().enumerate();
        let (at, _) = listeners
            .filter_map(|(at, passed)| Some((at, (passed.name == name, fits(&passed.address)?))))
            .filter(|(_, found)| *found != (false, false))
            // The first of the best ones.
            .rev()
            .max_by_key(|(_, found)| *found)?;
        Some(self.0.remove(at).socket)
    }
}

/// Returns the address of a listener; `None` for other descriptors.
fn address(socket: &OwnedFd) -> Option<Address> {
    // The kernel of Apple does not say it, and its manager passes nothing in this way.
    #[cfg(not(target_vendor = "apple"))]
    if !rustix::net::sockopt::socket_acceptconn(socket).ok()? {
        return None;
    }
    let bound = getsockname(socket).ok()?;
    if let Ok(addr) = SocketAddr::try_from(bound.clone()) {
        return Some(Address::Tcp { addr, only_v6: ipv6_v6only(socket).unwrap_or(false) });
    }
    let bound = SocketAddrUnix::try_from(bound).ok()?;
    Some(Address::Unix(bound.path().map(|path| OsStr::from_bytes(path.to_bytes()).into())))
}

#[cfg(test)]
mod tests;
