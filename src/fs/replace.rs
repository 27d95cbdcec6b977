//! Replacing a file: old or new, never anything between.

use std::error::Error as StdError;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;

use bytes::Bytes;
use futures_core::Stream;
use rustix::fs::Statx;

use super::chunk_batch::ChunkBatch;
use super::durability::Durability;
use super::error::{Error, Result, Step};
use super::preserve::{Metadata, Old, Preserve};
use super::target::Target;
use super::temp_file::TempFile;
use super::work::{self, Caller};
use crate::runtime::blocking;
use crate::sys::file::Access;

/// Replaces the contents of a file, or makes it: [`Replace`] with its defaults.
///
/// After `Ok` the new file survives a power cut. Whoever reads meanwhile, and whoever comes after a crash at any moment,
/// finds the old file or the new one, whole.
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
///
/// # Errors
///
/// As [`Replace::run`].
pub async fn replace(path: impl AsRef<Path>, contents: impl Into<Bytes>) -> Result<()> {
    Replace::new(path).run(contents).await
}

/// How to replace a file.
///
/// The new contents go to a file without a name in the same directory, which gets the metadata of the old file, is
/// synced, is given a name and renamed over the old one; then the directory is synced. All of it is one job on the
/// blocking pool; for a stream it is one for every 1 MiB.
///
/// * **Readers** see the old file or the new one. Those that have the old one open keep it.
/// * **Hard links**: the other names of the old file keep the old contents.
/// * **A symbolic link** is refused unless [`follow_link`](Self::follow_link) says otherwise. What is no regular file is
///   always refused.
/// * **Two at once**: each is whole, and the one that renames last is what is left.
/// * **A killed process** may leave `.NAME.millstream-N` beside the file. The next change of the same file by
///   [`Replace`] or [`Prepend`](super::Prepend) removes what no living process holds, on file systems with
///   [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html). On a network file system mounted with local locks
///   the writers of different machines cannot see each other's: the later one may remove the earlier one's new file,
///   which then fails and leaves the old file as it was.
#[derive(Clone, Debug)]
#[must_use = "nothing is done until `run`"]
pub struct Replace {
    path: PathBuf,
    durability: Durability,
    follow_link: bool,
    keep: Preserve,
    mode: Option<u32>,
}

impl Replace {
    /// Of the file at `path`, which need not exist; its directory must, and this process must be allowed to read and to
    /// write that.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            durability: Durability::default(),
            follow_link: false,
            keep: Preserve::default(),
            mode: None,
        }
    }

    /// What is promised about a power cut. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether a symbolic link at the path leads to the file to replace, which then keeps its place and the link stays.
    /// By default a link is refused: who may make one could choose what is overwritten.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.follow_link = follow;
        self
    }

    /// What the new file takes over from the old one. [`Preserve::All`] by default.
    pub fn keep(mut self, keep: Preserve) -> Self {
        self.keep = keep;
        self
    }

    /// Gives the new file exactly these permission bits, such as `0o640`, whatever the umask and the old file say. By
    /// default it has those of the old file, and where there was none, `0o666` less the umask.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Replaces the file with `contents`.
    ///
    /// # Errors
    ///
    /// The error names the [step](Step). Whatever fails before the rename leaves the old file as it was and no other
    /// file beside it. After it there is only [`Step::SyncDirectory`]: the new file is in its place. A failed sync is
    /// told once and never tried again, for the kernel would report success without having written.
    ///
    /// # Cancellation
    ///
    /// Dropping the future before the rename leaves the old file; later than that the new one is in its place. It does
    /// not wait for the one or the other, and nothing is left behind.
    pub async fn run(self, contents: impl Into<Bytes>) -> Result<()> {
        let contents = contents.into();
        work::run(&self.path.clone(), move |caller| {
            let mut writer = Writer::open(&self)?;
            writer.write(&[contents], caller)?;
            writer.finish(caller)
        })
        .await
    }

    /// Replaces the file with what a stream brings: the body of a request, for example. Returns how many bytes that was.
    ///
    /// At most 1 MiB and one item of the stream are in memory. The stream is not polled while the disk is busy, and a
    /// stream that is slow keeps no thread of the blocking pool.
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
    /// As [`run`](Self::run), and [`Step::Receive`] with the error of the stream; nothing of what it brought is left then.
    ///
    /// # Cancellation
    ///
    /// As [`run`](Self::run). The new file is removed on the blocking pool.
    pub async fn run_stream<S, B, E>(self, stream: S) -> Result<u64>
    where
        S: Stream<Item = std::result::Result<B, E>>,
        B: Into<Bytes>,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut stream = pin!(stream);
        let path = self.path.clone();
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
            let (plan, writer, pieces) = (self.clone(), parked.0.take(), chunk_batch.into_pieces());
            let step = move |caller: &Caller| {
                let mut writer = writer.map_or_else(|| Writer::open(&plan), Ok)?;
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

/// A draft that is being written.
#[derive(Debug)]
struct Writer {
    temp_file: TempFile,
    metadata: Metadata,
    durability: Durability,
    /// The file that is replaced: its status, and itself if it could be opened.
    old: Option<(Statx, Option<OwnedFd>)>,
    written: u64,
}

impl Writer {
    fn open(plan: &Replace) -> Result<Self> {
        let (target, found) = Target::open(&plan.path, plan.follow_link)?;
        let old = match found.filter(|_| plan.keep != Preserve::Nothing) {
            None => None,
            Some(found) => match target.open_old(Access::Read) {
                Ok((fd, statx)) => Some((statx, Some(fd))),
                // What may not be read has attributes that may not be read.
                Err(_) if plan.keep == Preserve::Possible => Some((found, None)),
                Err(e) => return Err(e),
            },
        };
        let metadata = Metadata { keep: plan.keep, mode: plan.mode };
        let temp_file = TempFile::new(target, metadata.draft_mode(old.is_some()))?;
        Ok(Self { temp_file, metadata, durability: plan.durability, old, written: 0 })
    }

    fn write(&mut self, pieces: &[Bytes], caller: &Caller) -> Result<()> {
        self.written += self.temp_file.write(pieces, self.written, caller)?;
        Ok(())
    }

    fn finish(self, caller: &Caller) -> Result<()> {
        let old = self.old.as_ref().map(|(statx, fd)| Old { statx, fd: fd.as_ref().map(AsFd::as_fd) });
        self.metadata.apply(self.temp_file.target(), old, self.temp_file.fd())?;
        self.temp_file.publish(self.durability, caller, |_| Ok(()))
    }
}

/// A writer between two jobs. Removing a large file takes the disk its time, so that is never done where it is dropped.
struct Parked(Option<Writer>);

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            blocking::dispose(writer);
        }
    }
}
