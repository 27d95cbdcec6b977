//! Appends bytes to a file.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::change::Change;
use super::durability::Durability;
use super::error::{Result, Step};
use super::target::Target;
use super::work;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::file;
use crate::sys::file::Access;

/// Appends `bytes` to a file, or creates it: [`Append`] with its defaults.
///
/// After `Ok` the bytes survive a power cut.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("audit.log");
/// millstream::fs::append(&path, "started\n").await?;
/// millstream::fs::append(&path, "stopped\n").await?;
/// assert_eq!(std::fs::read(&path)?, b"started\nstopped\n");
/// # Ok(())
/// # }
/// ```
pub async fn append(path: impl AsRef<Path>, bytes: impl Into<Bytes>) -> Result<()> {
    Append::new(path).run(bytes).await
}

/// Options for appending to a file.
///
/// Appending is one job on the blocking pool and, unless the disk accepts less, one write with `O_APPEND`: bytes of
/// other writers come before or after these, not between, except on network file systems.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until `run`"]
pub struct Append(Change);

const RACES: usize = 16;

impl Append {
    /// Appends to the file at `path`. Creates it if needed, with the permissions `0o666` less the umask.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(Change::new(path.as_ref()))
    }

    /// Sets the guarantee about power cuts. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.0.durability = durability;
        self
    }

    /// Sets whether a symbolic link at the path is followed. Refused by default.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.0.follow_link = follow;
        self
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    ///
    /// The error names the [step](Step). [`Error::written`](super::Error::written) returns the number of bytes that
    /// were appended before it, for example before the disk was full or the sync failed. They are **not** removed,
    /// because that could remove bytes appended by another process since.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before the work has started cancels it; later the work completes.
    pub async fn run(self, bytes: impl Into<Bytes>) -> Result<()> {
        let bytes = bytes.into();
        work::run(&self.0.path.clone(), move |_| {
            let (target, fd, is_new) = self.open(|| {})?;
            let mut written = 0;
            let ended = loop {
                if written == bytes.len() {
                    break Ok(());
                }
                match file::write_end(fd.as_fd(), &bytes[written..]) {
                    Ok(n) => written += n,
                    Err(e) => break Err(target.at(Step::Write)(e)),
                }
            };
            let synced = ended.and_then(|()| {
                self.0.durability.sync_in_place(fd.as_fd()).map_err(target.at(Step::Sync))?;
                if is_new && self.0.durability == Durability::Full { target.sync_directory() } else { Ok(()) }
            });
            synced.map_err(|e| e.after_writing(written as u64))
        })
        .await
    }

    /// Opens the file. Also returns whether its new name may not be on the disk yet. Calls `looked` after each look-up.
    fn open(&self, looked: impl Fn()) -> Result<(Target, OwnedFd, bool)> {
        let mut races = 0;
        let mut is_new = false;
        loop {
            let (target, found) = self.0.target()?;
            looked();
            let opened = match found {
                Some(_) => target.open_old(Access::Append).map(|(fd, _)| fd),
                None => {
                    is_new = true;
                    file::create_at(target.dir(), target.name(), Access::Append, 0o666).map_err(target.at(Step::Create))
                }
            };
            match opened {
                Ok(fd) => return Ok((target, fd, is_new)),
                // Another process has just created or removed it.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) && races < RACES =>
                {
                    races += 1
                }
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_makes_at_the_same_time_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let append = Append::new(&path);
        let by_another = || drop(std::fs::File::options().append(true).create(true).open(&path).unwrap());
        let (_, _, is_new) = append.open(by_another).unwrap();
        assert!(is_new, "its directory must be synced");
        let (_, _, is_new) = append.open(|| {}).unwrap();
        assert!(!is_new);
    }
}
