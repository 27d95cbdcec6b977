//! Atomic replacement of a file.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::pin::pin;

use bytes::Bytes;
use futures_core::Stream;

use super::change::Change;
use super::chunk_batch::ChunkBatch;
use super::durability::Durability;
use super::error::{Error, Result, Step};
use super::preserve::{Old, Preserve};
use super::temp_file::TempFile;
use super::work::{self, Caller};
use crate::runtime::blocking;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::file::Access;
use crate::sys::status::Statx;

/// Replaces the contents of a file, or creates it: [`Replace`] with its defaults.
///
/// After `Ok` the new file survives a power cut. Readers, also after a crash at any moment, find either the old file or
/// the new one, complete.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("state.json");
/// millstream::fs::replace(&path, r#"{"counter": 7}"#).await?;
/// assert_eq!(std::fs::read(&path)?, br#"{"counter": 7}"#);
/// # Ok(())
/// # }
/// ```
pub async fn replace(path: impl AsRef<Path>, contents: impl Into<Bytes>) -> Result<()> {
    Replace::new(path).run(contents).await
}

/// Options for replacing a file.
///
/// The new contents are written to an unnamed file in the same directory, which gets the metadata of the old file, is
/// synced, linked to a name and renamed over the old one; then the directory is synced. This is one job on the blocking
/// pool; for a stream one for every 1 MiB.
///
/// * **Readers** see the old file or the new one. Processes that have the old one open keep it.
/// * **Hard links**: the other names of the old file keep the old contents.
/// * **A symbolic link** is refused unless [`follow_link`](Self::follow_link) is set. Anything but a regular file is
///   always refused.
/// * **Two at once**: each file is complete, and the last rename wins.
/// * **A killed process** may leave `.NAME.millstream-N` beside the file. The next change of the same file by
///   [`Replace`] or [`Prepend`](super::Prepend) removes such files that no living process has locked, on file systems
///   with [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html). On a network file system mounted with local
///   locks, writers on different machines do not see each other's locks: the later one may remove the new file of the
///   earlier one, which then fails and leaves the old file unchanged.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until `run`"]
pub struct Replace(Change);

impl Replace {
    /// Replaces the file at `path`, which need not exist. Its directory must exist, and this process must be allowed to
    /// read and write it.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(Change::new(path.as_ref()))
    }

    /// Sets the guarantee about power cuts. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.0.durability = durability;
        self
    }

    /// Sets whether a symbolic link at the path is followed: its target is replaced in place, and the link stays.
    /// Refused by default, because a user who may create a link could choose which file is overwritten.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.0.follow_link = follow;
        self
    }

    /// Sets the metadata that the new file takes over from the old one. [`Preserve::All`] by default.
    pub fn keep(mut self, keep: Preserve) -> Self {
        self.0.attributes.keep = keep;
        self
    }

    /// Sets the exact permission bits of the new file, such as `0o640`, regardless of the umask and the old file. By
    /// default it gets those of the old file, or without one `0o666` less the umask.
    pub fn mode(mut self, mode: u32) -> Self {
        self.0.attributes.mode = Some(mode);
        self
    }

    /// Replaces the file with `contents`.
    ///
    /// # Errors
    ///
    /// The error names the [step](Step). An error before the rename leaves the old file unchanged and no other file
    /// beside it. After the rename only [`Step::SyncDirectory`] can fail: the new file is in place. A failed sync is
    /// returned once and never retried, because the kernel would report success without having written.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before the rename leaves the old file, after it the new one. The drop waits for neither, and
    /// no other file remains.
    pub async fn run(self, contents: impl Into<Bytes>) -> Result<()> {
        let contents = contents.into();
        work::run(&self.0.path.clone(), move |caller| {
            let mut writer = Writer::open(self.0)?;
            writer.write(&[contents], caller)?;
            writer.finish(caller)
        })
        .await
    }

    /// Replaces the file with the items of a stream, for example the body of a request. Returns the number of bytes.
    ///
    /// At most 1 MiB and one item of the stream are in memory. The stream is not polled while the disk is busy, and a
    /// slow stream occupies no thread of the blocking pool.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("upload");
    /// use futures_util::stream;
    /// use millstream::fs::Replace;
    ///
    /// let body = stream::iter([Ok::<_, std::io::Error>("one, "), Ok("two")]);
    /// assert_eq!(Replace::new(&path).run_stream(body).await?, 8);
    /// assert_eq!(std::fs::read(&path)?, b"one, two");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails like [`run`](Self::run), and with [`Step::Receive`] and the error of the stream; its bytes are then
    /// removed.
    pub async fn run_stream<S, B, E>(self, stream: S) -> Result<u64>
    where
        S: Stream<Item = std::result::Result<B, E>>,
        B: Into<Bytes>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut stream = pin!(stream);
        let path = self.0.path.clone();
        let mut parked = Parked(None);
        loop {
            let mut chunk_batch = ChunkBatch::default();
            let ended = match chunk_batch.fill(stream.as_mut()).await {
                Ok(ended) => ended,
                Err(e) => {
                    let writer = parked.0.take();
                    let remove = move |_: &Caller| {
                        drop(writer);
                        Ok(())
                    };
                    work::run(&path, remove).await?;
                    return Err(Error::new(Step::Receive, &path, io::Error::other(e)));
                }
            };
            let (change, writer, pieces) = (self.0.clone(), parked.0.take(), chunk_batch.into_pieces());
            let step = move |caller: &Caller| {
                let mut writer = writer.map_or_else(|| Writer::open(change), Ok)?;
                writer.write(&pieces, caller)?;
                let written = writer.written;
                if ended {
                    writer.finish(caller)?;
                    return Ok((None, written));
                }
                Ok((Some(writer), written))
            };
            let (writer, written) = work::run(&path, step).await?;
            parked.0 = writer;
            if ended {
                return Ok(written);
            }
        }
    }
}

#[derive(Debug)]
struct Writer {
    temp_file: TempFile,
    change: Change,
    old: Option<(Statx, Option<OwnedFd>)>,
    written: u64,
}

impl Writer {
    fn open(change: Change) -> Result<Self> {
        let (target, found) = change.target()?;
        let keep = change.attributes.keep;
        let old = match found.filter(|_| keep != Preserve::Nothing) {
            None => None,
            Some(found) => match target.open_old(Access::Read) {
                Ok((fd, statx)) => Some((statx, Some(fd))),
                // If the file is unreadable, so are its attributes.
                Err(_) if keep == Preserve::Possible => Some((found, None)),
                Err(e) => return Err(e),
            },
        };
        let temp_file = TempFile::new(target, change.attributes.temp_mode(old.is_some()))?;
        Ok(Self { temp_file, change, old, written: 0 })
    }

    fn write(&mut self, pieces: &[Bytes], caller: &Caller) -> Result<()> {
        self.written += self.temp_file.write(pieces, self.written, caller)?;
        Ok(())
    }

    fn finish(self, caller: &Caller) -> Result<()> {
        let old = self.old.as_ref().map(|(statx, fd)| Old { statx, fd: fd.as_ref().map(AsFd::as_fd) });
        self.change.attributes.apply(self.temp_file.target(), old, self.temp_file.fd())?;
        self.temp_file.publish(self.change.durability, caller, |_| Ok(()))
    }
}

/// A writer between two jobs. Removing a large file blocks on the disk, so it is not removed on the dropping thread.
struct Parked(Option<Writer>);

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            blocking::dispose(writer);
        }
    }
}
