//! Error of a body that was not saved.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http::StatusCode;

use crate::body::length_limit::{is_length_limit, length_limit};
use crate::fs;
use crate::fs::Step;
use crate::fs::receive::WrongOffset;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Error of a body that was not saved.
///
/// The text names the failed step, and the [`source`](Error::source) is the cause. If a service of
/// [`server`](crate::server) fails with the error of a body that is too large, the server answers with 413.
#[derive(Debug)]
pub struct SaveError {
    path: PathBuf,
    file_len: Option<u64>,
    cause: Cause,
}

#[derive(Debug)]
pub(super) enum Cause {
    File(fs::Error),
    /// The limit, and the error that frameworks know.
    TooLarge(u64, BoxError),
    Body(BoxError),
    /// The name of the field.
    #[cfg(feature = "digest")]
    Mismatch(&'static str),
    #[cfg(feature = "digest")]
    Malformed(&'static str),
    /// A digest is required, and there is none.
    #[cfg(feature = "digest")]
    NoDigest,
}

impl Cause {
    pub(super) fn too_large(limit: u64) -> Self {
        Self::TooLarge(limit, length_limit())
    }
}

impl From<fs::Error> for Cause {
    fn from(error: fs::Error) -> Self {
        Self::File(error)
    }
}

impl SaveError {
    pub(super) fn new(path: &Path, file_len: Option<u64>, cause: Cause) -> Self {
        Self { path: path.to_owned(), file_len, cause }
    }

    /// Creates the error of the file at `path`. `start` is the offset of a continued file.
    pub(super) fn file(path: &Path, start: Option<u64>, error: fs::Error) -> Self {
        let len = match (start, wrong_offset(&error), error.step()) {
            (_, Some(wrong), _) => Some(wrong.len),
            (Some(start), _, Step::Write | Step::Allocate | Step::Sync | Step::SyncDirectory) => {
                Some(start + error.written())
            }
            _ => None,
        };
        Self::new(path, len, Cause::File(error))
    }

    /// Returns the path of the file as given by the caller.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file after the error, where the client may continue. `None` unless
    /// [`Save::continue_at`](super::Save::continue_at) is set and the length is known.
    pub fn file_len(&self) -> Option<u64> {
        self.file_len
    }

    /// Returns whether the body is larger than [`Save::max_len`](super::Save::max_len), or than a limit of the body
    /// itself.
    pub fn is_too_large(&self) -> bool {
        match &self.cause {
            Cause::TooLarge(..) => true,
            Cause::Body(error) => is_length_limit(&**error),
            _ => false,
        }
    }

    /// Returns whether a digest sent by the client differs from that of the body.
    #[cfg(feature = "digest")]
    pub fn is_digest_mismatch(&self) -> bool {
        matches!(self.cause, Cause::Mismatch(_))
    }

    /// Returns whether a digest field is malformed.
    #[cfg(feature = "digest")]
    pub fn is_malformed_digest(&self) -> bool {
        matches!(self.cause, Cause::Malformed(_))
    }

    /// Returns whether the message has no digest, although [`Save::require_digest`](super::Save::require_digest) is
    /// set.
    #[cfg(feature = "digest")]
    pub fn is_no_digest(&self) -> bool {
        matches!(self.cause, Cause::NoDigest)
    }

    /// Returns whether the body failed, for example because the client left.
    pub fn is_body(&self) -> bool {
        matches!(self.cause, Cause::Body(_))
    }

    /// Returns whether the disk, or the quota of the user, has no space left.
    pub fn is_no_space(&self) -> bool {
        self.fs().is_some_and(fs::Error::is_no_space)
    }

    /// Returns whether the file exists, although it must not.
    pub fn is_already_exists(&self) -> bool {
        self.fs().is_some_and(|e| e.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Returns whether the file to continue has another length than the offset. [`file_len`](Self::file_len) returns
    /// it.
    pub fn is_wrong_offset(&self) -> bool {
        self.fs().is_some_and(|e| wrong_offset(e).is_some())
    }

    /// Returns whether another save continues the file at the same time.
    pub fn is_busy(&self) -> bool {
        self.fs().is_some_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
    }

    /// Returns a status for the response: 413 if the body is too large, 400 for digests and bodies that failed, 409
    /// for a file that exists, has another length or is busy, 507 for a full disk, 500 otherwise.
    pub fn status(&self) -> StatusCode {
        match &self.cause {
            _ if self.is_too_large() => StatusCode::PAYLOAD_TOO_LARGE,
            Cause::Body(_) => StatusCode::BAD_REQUEST,
            #[cfg(feature = "digest")]
            Cause::Mismatch(_) | Cause::Malformed(_) | Cause::NoDigest => StatusCode::BAD_REQUEST,
            _ if self.is_already_exists() || self.is_wrong_offset() || self.is_busy() => StatusCode::CONFLICT,
            _ if self.is_no_space() => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn fs(&self) -> Option<&fs::Error> {
        match &self.cause {
            Cause::File(error) => Some(error),
            _ => None,
        }
    }
}

fn wrong_offset(error: &fs::Error) -> Option<&WrongOffset> {
    error.cause().get_ref()?.downcast_ref()
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::File(_) => f.write_str("the body was not saved")?,
            Cause::TooLarge(limit, _) => {
                write!(f, "{}: the file would be larger than {limit} bytes", self.path.display())?
            }
            Cause::Body(_) => write!(f, "{}: the body was not received to its end", self.path.display())?,
            #[cfg(feature = "digest")]
            Cause::Mismatch(field) => write!(f, "{}: the body does not match its {field}", self.path.display())?,
            #[cfg(feature = "digest")]
            Cause::Malformed(field) => write!(f, "{}: the {field} of the body is malformed", self.path.display())?,
            #[cfg(feature = "digest")]
            Cause::NoDigest => write!(f, "{}: a digest is required; send Content-Digest", self.path.display())?,
        }
        match self.file_len {
            Some(len) => write!(f, "; the file has {len} bytes"),
            None => Ok(()),
        }
    }
}

impl Error for SaveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::File(error) => Some(error),
            Cause::TooLarge(_, error) | Cause::Body(error) => Some(&**error),
            #[cfg(feature = "digest")]
            Cause::Mismatch(_) | Cause::Malformed(_) | Cause::NoDigest => None,
        }
    }
}

impl From<SaveError> for io::Error {
    fn from(error: SaveError) -> Self {
        let kind = match &error.cause {
            Cause::File(error) => error.kind(),
            Cause::TooLarge(..) => io::ErrorKind::FileTooLarge,
            Cause::Body(_) => io::ErrorKind::Other,
            #[cfg(feature = "digest")]
            Cause::Mismatch(_) | Cause::Malformed(_) | Cause::NoDigest => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
