//! Bytes at the end of a file.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::durability::Durability;
use super::error::{Result, Step};
use super::target::Target;
use super::work;
use crate::sys::file;
use crate::sys::file::Access;

/// Writes `bytes` at the end of a file, or makes it: [`Append`] with its defaults.
///
/// After `Ok` they survive a power cut.
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
///
/// # Errors
///
/// As [`Append::run`].
pub async fn append(path: impl AsRef<Path>, bytes: impl Into<Bytes>) -> Result<()> {
    Append::new(path).run(bytes).await
}

/// How to write at the end of a file.
///
/// It is one job on the blocking pool and, unless the disk takes less, one write with `O_APPEND`: bytes of others who
/// append to the same file come before or after these, not between. Network file systems do not promise that.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until `run`"]
pub struct Append {
    path: PathBuf,
    durability: Durability,
    follow_link: bool,
}

/// How often a file is looked for again that others make and remove at the same time.
const RACES: usize = 16;

impl Append {
    /// To the file at `path`. If there is none it is made, with the permissions `0o666` less the umask.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), durability: Durability::default(), follow_link: false }
    }

    /// What is promised about a power cut. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether a symbolic link at the path leads to the file that is meant. Refused by default.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.follow_link = follow;
        self
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    ///
    /// The error names the [step](Step). [`Error::written`](super::Error::written) says how many bytes are in the file
    /// all the same, be it that the disk is full or that it failed to sync. They are **not** taken back: somebody else may
    /// have appended since, and would lose bytes.
    ///
    /// # Cancellation
    ///
    /// Dropping the future before the work has started takes it back; later it is done to its end.
    pub async fn run(self, bytes: impl Into<Bytes>) -> Result<()> {
        let bytes = bytes.into();
        work::run(&self.path.clone(), move |_| {
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
                self.durability.sync_in_place(fd.as_fd()).map_err(target.at(Step::Sync))?;
                if is_new && self.durability == Durability::Full { target.sync_directory() } else { Ok(()) }
            });
            synced.map_err(|e| e.after_writing(written as u64))
        })
        .await
    }

    /// Opens the file, and says whether its name may not be on the disk yet: it was made, here or by somebody else at the
    /// same time, who may not have synced the directory yet. `looked` is called after each look for it.
    fn open(&self, looked: impl Fn()) -> Result<(Target, OwnedFd, bool)> {
        let mut races = 0;
        let mut is_new = false;
        loop {
            let (target, found) = Target::open(&self.path, self.follow_link)?;
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
                // Somebody else made it, or removed it, just now.
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
        assert!(is_new, "its directory is synced");
        let (_, _, is_new) = append.open(|| {}).unwrap();
        assert!(!is_new);
    }
}
