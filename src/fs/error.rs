//! Error of a file operation: the step, the path, the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Error of a file operation: the step, the path, and the cause.
///
/// `?` turns it into an [`io::Error`] of the same kind, whose [`get_ref`](io::Error::get_ref) is this error, with the
/// error number and the step. The [`io::Error`]s of [`FileReader`](super::FileReader),
/// [`FileWriter`](super::FileWriter) and [`FileBody`](crate::body::FileBody) also contain one. The text names the path
/// and the step; the cause is the [`source`](std::error::Error::source).
#[derive(Debug)]
pub struct Error {
    step: Step,
    path: PathBuf,
    written: u64,
    source: io::Error,
}

/// The step that failed. Displayed as a verb: `sync the directory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Starting work on the runtime, which does not exist or is shutting down.
    Start,
    /// Opening the directory of the file, which needs permission to read it.
    OpenDirectory,
    /// Inspecting the file at the path, which may have the wrong type for the change.
    Inspect,
    /// Opening the file.
    Open,
    /// Reading.
    Read,
    /// Creating the new file.
    Create,
    /// Receiving the contents from a stream, which failed.
    Receive,
    /// Writing the contents.
    Write,
    /// Allocating space.
    Allocate,
    /// Truncating or extending the file.
    SetLength,
    /// Closing the file, usually because a network file system failed to write earlier bytes.
    Close,
    /// Moving the contents from file to file.
    Move,
    /// Setting the owner and group of the old file on the new one.
    KeepOwner,
    /// Setting the permission bits of the new file.
    SetMode,
    /// Copying the extended attributes of the old file, including access control lists, to the new one.
    KeepAttributes,
    /// Syncing the contents to the disk.
    Sync,
    /// Checking that the file is unchanged since it was read.
    Recheck,
    /// Linking the new file to a name beside the old one.
    Link,
    /// Renaming the file.
    Rename,
    /// Removing the file.
    Remove,
    /// Syncing the directory to the disk. **The new file is in place**, and other processes see it, but it may be lost
    /// after a power cut.
    SyncDirectory,
    /// The future was dropped before the new file was in place.
    Abandon,
    /// Flushing the target of a copy.
    Flush,
    /// Shutting down the target of a copy after the end of its source.
    Shutdown,
}

pub(super) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn new(step: Step, path: &Path, source: io::Error) -> Self {
        Self { step, path: path.to_owned(), written: 0, source }
    }

    pub(crate) fn into_cause(self) -> io::Error {
        self.source
    }

    pub(crate) fn cause(&self) -> &io::Error {
        &self.source
    }

    pub(super) fn after_writing(mut self, written: u64) -> Self {
        self.written = written;
        self
    }

    /// Returns the failed step.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Returns the path of the file as given by the caller.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes that were appended before the error. 0 except for [`Append`](super::Append) and for
    /// a [`Save`](crate::body::Save) that continues a file.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the kind of the underlying error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns whether the file or its directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Returns whether the disk, or the quota of the user, has no space left.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns the error number, if the kernel returned one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.step)?;
        if self.written > 0 {
            write!(f, "; {} bytes were appended", self.written)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start the operation",
            Self::OpenDirectory => "open the directory",
            Self::Inspect => "look at the file",
            Self::Open => "open the file",
            Self::Read => "read",
            Self::Create => "create the new file",
            Self::Receive => "receive the contents",
            Self::Write => "write",
            Self::Allocate => "allocate space",
            Self::SetLength => "set the length",
            Self::Close => "close",
            Self::Move => "move the contents",
            Self::KeepOwner => "keep the owner",
            Self::SetMode => "set the mode",
            Self::KeepAttributes => "keep the attributes",
            Self::Sync => "sync the file",
            Self::Recheck => "check the file again",
            Self::Link => "link the new file",
            Self::Rename => "rename the file",
            Self::Remove => "remove the file",
            Self::SyncDirectory => "sync the directory",
            Self::Abandon => "continue after the caller was dropped",
            Self::Flush => "flush",
            Self::Shutdown => "shut down",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_step_the_path_and_the_number_survive_the_question_mark() {
        let full = || Error::new(Step::SyncDirectory, Path::new("state.json"), io::Error::from_raw_os_error(28));
        let error = io::Error::from(full());
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), "state.json: sync the directory");
        assert_eq!((full().is_no_space(), full().is_not_found()), (true, false));
        let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
        assert_eq!(
            (inner.step(), inner.raw_os_error(), inner.path()),
            (Step::SyncDirectory, Some(28), "state.json".as_ref())
        );
        assert_eq!(inner.source().unwrap().to_string(), "No space left on device (os error 28)");
        let appended = full().after_writing(5);
        assert_eq!(appended.written(), 5);
        assert_eq!(appended.to_string(), "state.json: sync the directory; 5 bytes were appended");
    }
}
