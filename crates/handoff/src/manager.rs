//! Messages to a service manager: [sd_notify(3)](https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::log;
use crate::record::NAME_MAX;
use crate::rights;

/// Time for a manager that reads no messages.
const TIME: Duration = Duration::from_secs(5);

/// Sends `state` to the service manager, for instance `STATUS=…`, if this process has one (`NOTIFY_SOCKET`).
///
/// [`Handoff::ready`](crate::Handoff::ready) says `READY=1` and `MAINPID=`. Say `STOPPING=1` only if there is no next
/// process: it ends the unit.
///
/// # Errors
///
/// The socket of the manager does not exist, is not a Unix socket, or takes no message within 5 s. Whether the manager
/// accepts the message is not known.
///
/// # Panics
///
/// Panics outside a tokio runtime with I/O and time enabled.
pub async fn notify(state: &str) -> io::Result<()> {
    send(std::env::var_os("NOTIFY_SOCKET").as_deref(), state, &[]).await
}

/// Says that this process is the one that serves.
pub(crate) async fn announce() {
    told(notify(&format!("READY=1\nMAINPID={}", std::process::id())).await);
}

/// Keeps listeners for the next start of the service, and gives up those that are kept under the names `left`: a manager
/// that keeps a listener without a process keeps its clients waiting.
pub(crate) async fn keep(listeners: Vec<(String, OwnedFd)>, left: Vec<String>) {
    let manager = std::env::var_os("NOTIFY_SOCKET");
    for (name, socket) in listeners {
        told(send(manager.as_deref(), &format!("FDSTORE=1\nFDNAME={name}"), &[socket.as_fd()]).await);
    }
    for name in left.into_iter().filter(|name| may_be_stored(name)) {
        told(send(manager.as_deref(), &format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[]).await);
    }
}

/// Returns whether a manager takes this name: ASCII without control characters and `:`.
pub(crate) fn may_be_stored(name: &str) -> bool {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b':';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

fn told(result: io::Result<()>) {
    if let Err(error) = result {
        log::not_told(&error);
    }
}

async fn send(manager: Option<&OsStr>, state: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let Some(manager) = manager.filter(|path| !path.is_empty()) else { return Ok(()) };
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("NOTIFY_SOCKET={}: {e}", manager.display()));
    let sent = async {
        let socket = std::os::unix::net::UnixDatagram::unbound()?;
        socket.connect_addr(&address(manager.as_bytes())?)?;
        socket.set_nonblocking(true)?;
        let socket = UnixDatagram::from_std(socket)?;
        socket.async_io(Interest::WRITABLE, || rights::send(socket.as_fd(), state.as_bytes(), fds)).await
    };
    let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "the service manager reads no messages"));
    timeout(TIME, sent).await.unwrap_or_else(|_| late()).map(drop).map_err(failed)
}

fn address(manager: &[u8]) -> io::Result<SocketAddr> {
    match manager {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        [b'@', name @ ..] => <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(OsStr::from_bytes(manager)),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "no absolute path and no abstract name")),
    }
}

#[cfg(test)]
mod tests;
