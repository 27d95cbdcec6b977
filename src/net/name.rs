//! The name of a Unix listener in the file system: taken without a gap, given back when the listener goes.
//!
//! ```text
//!  lock the directory ─▶ bind ─┬─ done ──────────────────────────────────▶ mode ─▶ listen ─▶ unlock
//!                              └─ taken: connect ─┬─ answered: an error    ▲
//!                                                 └─ refused: remove ─▶ bind
//! ```
//!
//! The file of a socket stays behind when its process is killed, and nobody can bind over it; whether anybody listens is
//! known from connecting. Between bind and listen a live socket refuses as well, so all of it happens under a lock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use tokio::time::Instant;

use crate::runtime::blocking::BlockingTask;
use crate::sys::unix;

/// How long to wait for the lock on the directory. Servers of ours hold it for some system calls; who holds it for longer
/// has locked the directory for reasons of its own, and then there is no lock.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(5);

/// A socket that listens under a name of ours. Fields are dropped in order: a socket that is open holds its file's number,
/// so while it is, nothing else can have it.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) name: Option<Name>,
    pub(super) socket: OwnedFd,
}

/// The name of a socket that listens; removed when this is dropped, if the name is still that socket's.
#[derive(Debug)]
pub(super) struct Name {
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

impl Drop for Name {
    fn drop(&mut self) {
        if unix::identify_blocking(&self.path).is_ok_and(|(file, _)| file == self.file) {
            // Whoever comes next removes it otherwise.
            let _ = unix::remove_blocking(&self.path);
        }
    }
}

/// Binds `path` and listens. The directory is locked meanwhile, unless somebody else keeps it locked.
pub(super) async fn bind(path: PathBuf, backlog: u32, mode: Option<u32>) -> io::Result<Bound> {
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

/// As [`bind`], **waiting for the disk**. `None` says that somebody else has the lock on the directory, if it `locks`.
fn bind_blocking(path: &Path, backlog: u32, mode: Option<u32>, locks: bool) -> io::Result<Option<Bound>> {
    let shown = path.display();
    let failed = |what: &str, e: io::Error| io::Error::new(e.kind(), format!("{shown}: {what}: {e}"));
    let socket = unix::stream().map_err(|e| failed("make a socket", e))?;
    if unix::abstract_name(path).is_some() {
        let taken = |e| failed("bind the abstract name", e);
        unix::bind_blocking(socket.as_fd(), path).map_err(taken)?;
        unix::listen(socket.as_fd(), backlog).map_err(|e| failed("listen", e))?;
        return Ok(Some(Bound { name: None, socket }));
    }
    let _lock = match lock(path) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock && locks => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        lock => lock.map_err(|e| failed("lock the directory", e))?,
    };
    match unix::bind_blocking(socket.as_fd(), path) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::ADDRINUSE) => {
            remove_stale(path)?;
            unix::bind_blocking(socket.as_fd(), path).map_err(|e| failed("bind", e))?;
        }
        bound => bound.map_err(|e| failed("bind", e))?,
    }
    let (file, _) = unix::identify_blocking(path).map_err(|e| failed("look at the new socket", e))?;
    // The process may go to another directory.
    let path = std::path::absolute(path)?;
    let bound = Bound { name: Some(Name { path: path.clone(), file }), socket };
    // Before it listens: until then nobody can connect, whatever the mode.
    if let Some(mode) = mode {
        unix::set_mode_blocking(&path, mode).map_err(|e| failed("set the mode", e))?;
    }
    unix::listen(bound.socket.as_fd(), backlog).map_err(|e| failed("listen", e))?;
    Ok(Some(bound))
}

/// Locks the directory of `path`, unless it may not be read.
fn lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match unix::lock_directory_blocking(directory) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        lock => lock.map(Some),
    }
}

/// Removes the socket file of a server that is gone.
///
/// # Errors
///
/// What has the name is no such file, or it cannot be told.
fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |why: String| io::Error::new(io::ErrorKind::AddrInUse, format!("{}: {why}", path.display()));
    let (file, is_socket) = match unix::identify_blocking(path) {
        Ok(found) => found,
        // Its server has just removed it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if !is_socket {
        return Err(in_use("the name is taken by something that is no socket; remove it or choose another".into()));
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
