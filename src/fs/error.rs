//! What went wrong with a file: the step, the path, the number of the error.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// What failed with a file: the step, the path, and the number of the error.
///
/// `?` turns it into an [`io::Error`] of the same kind, whose [`get_ref`](io::Error::get_ref) is this error and keeps the
/// number of the error and the step. The [`io::Error`]s of a file's [`Reader`](super::Reader) and
/// [`Writer`](super::Writer) hold one, too.
#[derive(Debug)]
pub struct Error {
    step: Step,
    path: PathBuf,
    written: u64,
    source: io::Error,
}

/// What was being done when it failed. Displayed as a verb: `sync the directory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Handing the work to the runtime. There is none, or it shuts down.
    Start,
    /// Opening the directory the file is in, which needs permission to read it.
    OpenDirectory,
    /// Looking at what has the name now, or finding that it is no file to be changed.
    Inspect,
    /// Opening the file.
    Open,
    /// Reading.
    Read,
    /// Making the new file.
    Create,
    /// Waiting for the contents: the stream failed.
    Receive,
    /// Writing the contents.
    Write,
    /// Giving the file room.
    Allocate,
    /// Cutting the file, or making it longer.
    SetLength,
    /// Closing the file: writing what a network file system had put off, as a rule.
    Close,
    /// Moving the contents the file had.
    Move,
    /// Giving the new file the owner and group of the old one.
    KeepOwner,
    /// Giving the new file its permission bits.
    SetMode,
    /// Giving the new file the extended attributes of the old one; access control lists are among them.
    KeepAttributes,
    /// Syncing the contents to the disk.
    Sync,
    /// Finding the file unchanged since it was read.
    Recheck,
    /// Giving the new file a name beside the old one's.
    Link,
    /// Putting the new file in the place of the old one.
    Rename,
    /// Syncing the directory to the disk. **The new file is in its place**, and other processes see it; what is not
    /// known is whether it will be there after a power cut.
    SyncDirectory,
    /// The future was dropped before the new file was in its place.
    Abandon,
}

pub(super) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(super) fn new(step: Step, path: &Path, source: io::Error) -> Self {
        Self { step, path: path.to_owned(), written: 0, source }
    }

    pub(super) fn after_writing(mut self, written: u64) -> Self {
        self.written = written;
        self
    }

    /// What was being done.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The file, as the caller named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes at the end of the file that were appended all the same. Always 0 but for [`Append`](super::Append).
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The kind of the error beneath.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The number of the error, if the kernel gave one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path.display(), self.step, self.source)?;
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
            Self::Start => "start the work",
            Self::OpenDirectory => "open the directory",
            Self::Inspect => "look at the file",
            Self::Open => "open the file",
            Self::Read => "read",
            Self::Create => "make the new file",
            Self::Receive => "receive the contents",
            Self::Write => "write",
            Self::Allocate => "give the file room",
            Self::SetLength => "set the length",
            Self::Close => "close",
            Self::Move => "move the contents",
            Self::KeepOwner => "keep the owner",
            Self::SetMode => "set the mode",
            Self::KeepAttributes => "keep the attributes",
            Self::Sync => "sync the file",
            Self::Recheck => "look at the file again",
            Self::Link => "name the new file",
            Self::Rename => "rename the new file",
            Self::SyncDirectory => "sync the directory",
            Self::Abandon => "go on without a caller",
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
        assert_eq!(error.to_string(), "state.json: sync the directory: No space left on device (os error 28)");
        let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
        assert_eq!(
            (inner.step(), inner.raw_os_error(), inner.path()),
            (Step::SyncDirectory, Some(28), "state.json".as_ref())
        );
        assert_eq!(inner.source().unwrap().to_string(), "No space left on device (os error 28)");
        let appended = full().after_writing(5);
        assert_eq!(appended.written(), 5);
        assert!(appended.to_string().ends_with("; 5 bytes were appended"), "{appended}");
    }
}
