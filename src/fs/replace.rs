//! Atomic replacement of a file.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::pin::pin;

use bytes::Bytes;
use futures_core::Stream;

use super::Metadata;
use super::body::Body;
use super::change::Change;
use super::durability::Durability;
use super::error::{Error, Result, Step};
use super::preserve::Preserve;
use super::receive::{Inspect, Receiver, SinkMode, Stopped};
use super::sink::NewFile;
use super::work;
use crate::buf::lease;
use crate::sys::fd::AsFd;
use crate::sys::{call, file};

/// Length of a read past the length that a copied file had at first.
const MORE: usize = 64 << 10;

/// Replaces the contents of a file, or creates it: [`Replace`] with its defaults.
///
/// After `Ok` the new file survives a power cut. Readers find either the complete old file or the complete new one,
/// even after a crash at any moment.
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
/// The new contents are written to an unnamed file in the same directory. The file gets the metadata of the old one, is
/// synced, linked to a name, and renamed over the old file. Then the directory is synced. This is one job on the
/// blocking pool; for a stream, one job for every 448 KiB.
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
    /// Dropping the future before the rename leaves the old file, dropping it afterwards leaves the new one. The drop
    /// does not wait, and no other file remains.
    pub async fn run(self, contents: impl Into<Bytes>) -> Result<()> {
        let contents = contents.into();
        work::run(&self.0.path.clone(), move |caller| {
            let mut new = NewFile::open(self.0, false)?;
            new.write(&[contents], caller)?;
            new.finish(caller)
        })
        .await
    }

    /// Replaces the file with the items of a stream, for example the body of a request. Returns the number of bytes.
    ///
    /// At most 1 MiB and one item of the stream are in memory: the next bytes are received while the last ones are
    /// written. A slow disk stops the stream, and a slow stream occupies no thread of the blocking pool.
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
        let path = self.0.path.clone();
        let mut receiver = self.receiver(SinkMode::Replace, 0, ());
        match receiver.pump(pin!(stream), |_| {}).await {
            Ok(last) => Ok(receiver.finish(last, |()| Ok::<_, Error>(())).await?.0),
            Err(Stopped::File(e)) => Err(e),
            Err(Stopped::Stream(e, pieces)) => {
                receiver.stop(pieces).await?;
                Err(Error::new(Step::Receive, &path, io::Error::other(e)))
            }
        }
    }

    /// Replaces the file with the contents of the file at `from`, which is opened like
    /// [`File::open`](super::File::open) does. Returns the number of bytes. The new file gets the permission bits of
    /// `from`, without setuid and setgid, unless [`mode`](Self::mode) is set.
    ///
    /// The file system shares the blocks if it can; otherwise the kernel copies the bytes, or they are read and
    /// written. All of it is one job on the blocking pool.
    ///
    /// # Errors
    ///
    /// Fails like [`run`](Self::run); with [`Step::Open`] and the path of `from` if it cannot be opened, with
    /// [`Step::Inspect`] if it is not a regular file, and with [`Step::Recheck`] if it is truncated meanwhile.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_copy(mut self, from: impl AsRef<Path>) -> Result<u64> {
        let from = from.as_ref().to_owned();
        work::run(&self.0.path.clone(), move |caller| {
            let from = from.as_path();
            let at = |step| move |e: io::Error| Error::new(step, from, e);
            let source = file::open_followed(from).map_err(at(Step::Open))?;
            let statx = call::status(source.as_fd()).map_err(at(Step::Inspect))?;
            Metadata::new(&statx).must_be_file(io::ErrorKind::InvalidInput).map_err(at(Step::Inspect))?;
            self.0.attributes.mode.get_or_insert(u32::from(statx.stx_mode) & 0o777);
            let new = NewFile::open(self.0, false)?;
            let body = Body { from: source.as_fd(), len: statx.stx_size };
            body.move_to(new.temp_file(), 0, caller, None)?;
            // Some files have no length, and others grow.
            let mut len = statx.stx_size;
            loop {
                let mut piece = lease(MORE);
                let read =
                    piece.read_exactly_with(|spare| call::read_blocking(source.as_fd(), &mut spare[..MORE], len));
                if read.map_err(at(Step::Read))? == 0 {
                    break;
                }
                len += new.temp_file().write(&[piece], len, caller)?;
            }
            new.finish(caller)?;
            Ok(len)
        })
        .await
    }

    /// Returns a receiver of contents whose announced length is `expected`, or 0.
    pub(crate) fn receiver<I: Inspect>(self, place: SinkMode, expected: u64, inspect: I) -> Receiver<I> {
        Receiver::of(self.0, place, expected, inspect)
    }
}
