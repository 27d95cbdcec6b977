//! Appends bytes to a file.

use std::path::Path;

use bytes::Bytes;

use super::change::Change;
use super::durability::Durability;
use super::error::{Result, Step};
use super::preserve::MODE_NEW;
use super::work;
use crate::sys::fd::AsFd;
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
/// Appending is one job on the blocking pool. It is one write with `O_APPEND`, unless the kernel accepts only a part.
/// Except on network file systems, bytes of other writers come before or after the bytes of one write, not between
/// them.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until `run`"]
pub struct Append(Change);

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
            let (target, fd, _) = self.0.open_or_create(Access::Append, MODE_NEW, || {})?;
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
            let synced = ended.and_then(|()| target.sync_in_place(fd.as_fd(), self.0.durability));
            synced.map_err(|e| e.after_writing(written as u64))
        })
        .await
    }
}
