//! A regular file that is open for serving, and the header values of responses with it.

use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Bound, RangeBounds};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use rustix::fs::OFlags;

use super::FileBody;
use super::reader::Reader;
use crate::buf::origin::Mapping;
use crate::fs::{Metadata, root};
use crate::runtime::blocking::BlockingTask;
use crate::sys::call;

/// A regular file, open for serving. Clones share the file.
///
/// Length, tag and time are those at the time of opening. Bodies deliver exactly that many bytes or fail.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("report.pdf");
/// # std::fs::write(&path, [7; 1000])?;
/// use millstream::body::OpenFile;
///
/// let file = OpenFile::open(&path).await?;
/// let response = http::Response::builder()
///     .header("etag", file.etag())
///     .body(file.body(..))
///     .map_err(std::io::Error::other)?;
/// # assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(1000));
/// # Ok(())
/// # }
/// ```
///
/// # Safety contract
///
/// Frames of its [bodies](Self::body) may be slices of the mapped file: while one lives, the file must not be written
/// in place or truncated. See [`FileBody`](FileBody#safety-contract), and [`mapped`](Self::mapped) to turn mapping off.
#[derive(Clone, Debug)]
pub struct OpenFile {
    inner: Arc<Inner>,
    mapped: bool,
}

#[derive(Debug)]
struct Inner {
    file: Arc<File>,
    status: Metadata,
    path: Option<Box<Path>>,
    etag: HeaderValue,
    last_modified: Option<SystemTime>,
}

impl OpenFile {
    /// Opens a file on the blocking pool. Follows symbolic links. For paths from requests use
    /// [`Files`](crate::files::Files) or [`fs::Root`](crate::fs::Root).
    ///
    /// # Errors
    ///
    /// Fails like [`File::open`], and with `ErrorKind::PermissionDenied` if the path is not a regular file.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a file that is opened afterwards is closed.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path: Box<Path> = path.as_ref().into();
        BlockingTask::start(move || {
            // `NONBLOCK`, because opening a FIFO would wait for a writer.
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&path)?;
            Self::check(file, Some(path))
        })?
        .await
    }

    /// Creates an `OpenFile` from a file that is open for reading. The file position is neither used nor moved.
    ///
    /// # Errors
    ///
    /// Fails with `ErrorKind::PermissionDenied` if `file` is not a regular file.
    pub fn from_std(file: File) -> io::Result<Self> {
        Self::check(file, None)
    }

    fn check(file: File, path: Option<Box<Path>>) -> io::Result<Self> {
        let status = Metadata::new(&call::status(file.as_fd())?);
        if !status.is_file() {
            return Err(root::refused(path.as_deref().unwrap_or("the open file".as_ref()), &status));
        }
        Ok(Self::new(file, status, path))
    }

    pub(crate) fn new(file: File, status: Metadata, path: Option<Box<Path>>) -> Self {
        let etag = Tag::default().of(&status, "");
        let last_modified = last_modified(&status);
        let inner = Inner { file: Arc::new(file), status, path, etag, last_modified };
        Self { inner: Arc::new(inner), mapped: true }
    }

    /// Sets whether bodies may return slices of the mapped file, under the [contract](FileBody#safety-contract) that
    /// nothing writes to it in place. On by default. If off, bodies made by this handle and its later clones read the
    /// file into their own memory, which copies each byte, and do not use `sendfile`.
    pub fn mapped(mut self, on: bool) -> Self {
        self.mapped = on;
        self
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a file is not a collection")]
    pub fn len(&self) -> u64 {
        self.inner.status.len()
    }

    /// Returns a strong entity tag ([RFC 9110 §8.8.3](https://www.rfc-editor.org/rfc/rfc9110#section-8.8.3)), including
    /// quotes, made of the length and, in nanoseconds, the times of the last change of the contents (`mtime`) and of
    /// the inode (`ctime`). No program can set the `ctime`, so a file that is rewritten in place gets another tag even
    /// if its length stays the same and its `mtime` is restored.
    pub fn etag(&self) -> &HeaderValue {
        &self.inner.etag
    }

    /// Returns the time of the last change of the contents, in whole seconds and never in the future, as
    /// `Last-Modified` requires. `None` if the file system reports a time before 1970 or after 9999, which HTTP cannot
    /// represent.
    pub fn last_modified(&self) -> Option<SystemTime> {
        self.inner.last_modified
    }

    /// Returns a body with a range of the file: `..` for all of it. A range beyond the end is cut. Unless
    /// [`mapped`](Self::mapped) is off, the [safety contract](FileBody#safety-contract) applies.
    pub fn body(&self, range: impl RangeBounds<u64>) -> FileBody {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        FileBody::range(Reader::new(self.clone(), None), start..end.min(self.len()))
    }

    /// Does the same as [`body`](Self::body), from a mapping of the whole file that many bodies share.
    pub(crate) fn body_of(&self, window: Arc<Mapping>, range: std::ops::Range<u64>) -> FileBody {
        FileBody::range(Reader::new(self.clone(), Some(window)), range)
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.inner.file
    }

    pub(crate) fn status(&self) -> &Metadata {
        &self.inner.status
    }

    pub(crate) fn reaches(&self, end: u64) -> io::Result<()> {
        if call::status(self.inner.file.as_fd())?.stx_size >= end { Ok(()) } else { Err(self.short()) }
    }

    pub(super) fn short(&self) -> io::Error {
        let name = self.inner.path.as_deref().map_or_else(|| "the file".into(), |path| path.display().to_string());
        let message = format!("{name} is shorter than the {} bytes it had when it was opened", self.len());
        io::Error::new(io::ErrorKind::UnexpectedEof, message)
    }
}

/// The inputs of entity tags. The inode number is not among them, because it does not depend on the contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tag {
    #[default]
    Changed,
    /// The length and `mtime`, which are equal on machines with the same files.
    Modified,
}

impl Tag {
    /// Returns the tag of a file. `representation` distinguishes the representations of one resource.
    pub(crate) fn of(self, status: &Metadata, representation: &str) -> HeaderValue {
        let mut tag = String::with_capacity(64);
        let (len, modified) = (status.len(), status.modified_nanos());
        let written = match self {
            Self::Changed => write!(tag, "\"{len:x}-{modified:x}-{:x}{representation}\"", status.changed_nanos()),
            Self::Modified => write!(tag, "\"{len:x}-{modified:x}{representation}\""),
        };
        written.expect("writing to a string does not fail");
        HeaderValue::try_from(tag).expect("internal: quotes, digits, dashes and a suffix make a header value")
    }
}

fn last_modified(status: &Metadata) -> Option<SystemTime> {
    const TOO_LATE: Duration = Duration::from_secs(253_402_300_800);
    let now = SystemTime::now();
    let since = status.modified()?.min(now).duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since < TOO_LATE).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn ranges_are_cut_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "0123456789").unwrap();
        let file = OpenFile::open(&path).await.unwrap();
        assert_eq!(file.len(), 10);
        let bodies = [
            (file.body(..), "0123456789"),
            (file.body(3..), "3456789"),
            (file.body(3..=4), "34"),
            (file.body(8..100), "89"),
            (file.body(10..), ""),
            (file.body(100..), ""),
            (file.body((Bound::Excluded(7), Bound::Included(u64::MAX))), "89"),
        ];
        for (body, expected) in bodies {
            assert_eq!(body.size_hint().exact(), Some(expected.len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
        }
        #[expect(clippy::reversed_empty_ranges, reason = "users may do this")]
        let reversed = file.body(7..3);
        assert!(reversed.is_end_stream());
    }

    #[tokio::test]
    async fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        for path in [fifo.as_path(), dir.path(), "/dev/zero".as_ref()] {
            let error = OpenFile::open(path).await.unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        assert_eq!(OpenFile::open("/nowhere").await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let dev = File::open("/dev/null").unwrap();
        assert!(OpenFile::from_std(dev).unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn tags_differ_when_contents_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let open = || OpenFile::from_std(File::open(&path).unwrap()).unwrap();
        std::fs::write(&path, "same").unwrap();
        let before = open();
        assert_eq!(before.etag(), open().etag());
        std::fs::write(&path, "more!").unwrap();
        assert_ne!(before.etag(), open().etag());
        let tag = before.etag().to_str().unwrap();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        let tags = [Tag::Changed, Tag::Modified].map(|tag| ["", ".gz"].map(|of| tag.of(before.status(), of)));
        assert_eq!(tags.as_flattened().iter().collect::<std::collections::HashSet<_>>().len(), 4);
        assert_eq!(tags[0][0], before.etag());
    }

    #[test]
    fn times_are_what_http_can_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let with = |modified: SystemTime| {
            File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
            OpenFile::from_std(File::open(&path).unwrap()).unwrap().last_modified()
        };
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(with(epoch + Duration::from_millis(5900)), Some(epoch + Duration::from_secs(5)));
        assert_eq!(with(epoch - Duration::from_secs(5)), None);
        let future = with(SystemTime::now() + Duration::from_secs(1 << 20)).unwrap();
        assert!(future <= SystemTime::now());
    }
}
