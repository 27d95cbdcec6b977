//! The socket file of a Unix listener: created under a lock, and removed with the listener.
//!
//! ```text
//!  lock the directory ─▶ bind ─┬─ done ──────────────────────────────────▶ mode ─▶ listen ─▶ unlock
//!                              └─ taken: connect ─┬─ answered: an error    ▲
//!                                                 └─ refused: remove ─▶ bind
//! ```
//!
//! A killed process leaves its socket file behind, and bind fails on it. Connecting shows whether a server listens. A
//! live socket also refuses connections between bind and listen, so all steps run under a lock.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::runtime::blocking::BlockingTask;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::unix;

/// Time limit for the lock on the directory. This crate holds the lock only for a few system calls. If it is held for
/// longer, another program uses it for another purpose, and the steps run without it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// A listening socket and its name. Dropped in order: while the socket is open, no other file has its inode number.
#[derive(Debug)]
pub(in crate::net) struct Bound {
    pub(in crate::net) name: Option<Name>,
    pub(in crate::net) socket: OwnedFd,
}

/// The name of a listening socket; dropping it removes the file, if it is still that socket.
#[derive(Debug)]
pub(in crate::net) struct Name {
    path: PathBuf,
    file: (u64, u64),
    stays: bool,
}

impl Name {
    /// Leaves the file.
    pub(super) fn keep(mut self) {
        self.stays = true;
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        if !self.stays && unix::identify_blocking(&self.path).is_ok_and(|(file, _)| file == self.file) {
            // If this fails, the next server removes the file.
            let _ = unix::remove_blocking(&self.path);
        }
    }
}

/// Binds `path` and listens, with the directory locked if possible.
pub(in crate::net) async fn bind(path: PathBuf, backlog: u32, mode: Option<u32>) -> io::Result<Bound> {
    let since = Instant::now();
    loop {
        let path = path.clone();
        let locks = since.elapsed() < PATIENCE;
        match BlockingTask::start(move || bind_blocking(&path, backlog, mode, locks))?.await {
            Ok(Some(bound)) => return Ok(bound),
            Ok(None) => tokio::time::sleep(PAUSE).await,
            Err(e) => return Err(e),
        }
    }
}

/// As [`bind`], **waiting for the disk**. Returns `None` if `locks` is set and the directory is locked elsewhere.
fn bind_blocking(path: &Path, backlog: u32, mode: Option<u32>, locks: bool) -> io::Result<Option<Bound>> {
    let shown = path.display();
    let failed = |what: &str, e: io::Error| io::Error::new(e.kind(), format!("{shown}: {what}: {e}"));
    let socket = unix::stream().map_err(|e| failed("create a socket", e))?;
    if unix::abstract_name(path).is_some() {
        let taken = |e| failed("bind the abstract name", e);
        unix::bind_blocking(socket.as_fd(), path).map_err(taken)?;
        unix::listen(socket.as_fd(), backlog).map_err(|e| failed("listen", e))?;
        return Ok(Some(Bound { name: None, socket }));
    }
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _lock = match unix::lock_directory_blocking(directory) {
        Ok(None) if locks => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => None,
        lock => lock.map_err(|e| failed("lock the directory", e))?,
    };
    match unix::bind_blocking(socket.as_fd(), path) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::ADDRINUSE) => {
            remove_stale(path)?;
            unix::bind_blocking(socket.as_fd(), path).map_err(|e| failed("bind", e))?;
        }
        bound => bound.map_err(|e| failed("bind", e))?,
    }
    let (file, _) = unix::identify_blocking(path).map_err(|e| failed("query the new socket", e))?;
    // The working directory may change.
    let path = std::path::absolute(path)?;
    let bound = Bound { name: Some(Name { path: path.clone(), file, stays: false }), socket };
    // Set before listening, so that no peer connects earlier.
    if let Some(mode) = mode {
        unix::set_mode_blocking(&path, mode).map_err(|e| failed("set the mode", e))?;
    }
    unix::listen(bound.socket.as_fd(), backlog).map_err(|e| failed("listen", e))?;
    Ok(Some(bound))
}

/// Removes the socket file of a dead server.
///
/// # Errors
///
/// Fails if the file is not a socket, if a server listens on it, or if this cannot be determined.
fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |why: String| io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {why}", path.display()));
    let (file, is_socket) = match unix::identify_blocking(path) {
        Ok(found) => found,
        // The server has just removed it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !is_socket {
        return Err(in_use("the name is taken by a file that is no socket; remove it or choose another name".into()));
    }
    let probe = unix::stream()?;
    match unix::connect_blocking(probe.as_fd(), path) {
        Ok(()) => return Err(in_use("a server listens there; stop it or choose another name".into())),
        Err(e) => match Errno::from_io_error(&e) {
            Some(Errno::CONNREFUSED) => {}
            Some(Errno::NOENT) => return Ok(()),
            Some(Errno::AGAIN) => {
                return Err(in_use(
                    "a server listens there, and its queue is full; stop it or choose another name".into(),
                ));
            }
            _ => {
                return Err(in_use(format!("cannot tell whether a server listens there: {e}; remove it if none does")));
            }
        },
    }
    match unix::identify_blocking(path) {
        Ok((now, _)) if now == file => unix::remove_blocking(path),
        Ok(_) => Err(in_use("another server has just taken the name".into())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}
