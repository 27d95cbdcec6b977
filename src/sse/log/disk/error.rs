//! Errors of a log in a directory.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sys::errno::Errno;

/// Error of a [`Disk`](super::Disk). The message names the file or the directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DiskError {
    /// Another process, or another [`Disk`](super::Disk) of this process, has locked the directory.
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A record is damaged, and later records show that it was complete once.
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Offset of the record in bytes.
        offset: u64,
        /// The damage.
        reason: &'static str,
    },
    /// The directory, or the segment that is written, was removed.
    Removed {
        /// The directory.
        path: PathBuf,
    },
    /// A call failed.
    Io {
        /// The file or the directory.
        path: PathBuf,
        /// The failed step, as a verb.
        step: &'static str,
        /// The underlying error.
        source: Arc<io::Error>,
    },
    /// Events were given up, because their hubs were closed while the disk was full or the runtime ended.
    GivenUp {
        /// The directory.
        path: PathBuf,
        /// Number of events.
        events: u64,
    },
}

impl DiskError {
    pub(super) fn io(path: &Path, step: &'static str) -> impl Fn(io::Error) -> Self {
        move |e| Self::Io { path: path.to_owned(), step, source: Arc::new(e) }
    }

    /// Returns whether the process or the system has no descriptors left.
    pub(super) fn is_no_descriptor(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        let is = |errno: Errno| source.raw_os_error() == Some(errno.raw_os_error());
        is(Errno::MFILE) || is(Errno::NFILE)
    }

    fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Returns whether the disk, or the quota of the user, has no space left.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// Returns whether the user may not read or write the directory, or its file system is read-only.
    pub fn is_denied(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path } => write!(
                f,
                "{}: another log has this directory open; in this process use clones of one Disk, or wait until the other \
                 process has ended, which takes as long as it drains",
                path.display()
            ),
            Self::Damaged { path, offset, reason } => write!(
                f,
                "{}: the record at offset {offset} is damaged: {reason}; restore the file, or truncate it to {offset} \
                 bytes and lose the events after it",
                path.display()
            ),
            Self::Removed { path } => {
                write!(f, "{}: the directory or its segments were removed; open the log again", path.display())
            }
            Self::Io { path, step, .. } => write!(f, "{}: {step}", path.display()),
            Self::GivenUp { path, events } => {
                write!(f, "{}: {events} events were given up before they were in the log", path.display())
            }
        }
    }
}

/// The kind of the source of [`DiskError::Io`]; `ResourceBusy` for a directory in use, `InvalidData` for a damaged
/// record, `NotFound` for a directory that was removed, else `Other`.
impl From<DiskError> for io::Error {
    fn from(error: DiskError) -> Self {
        let kind = match &error {
            DiskError::Locked { .. } => io::ErrorKind::ResourceBusy,
            DiskError::Damaged { .. } => io::ErrorKind::InvalidData,
            DiskError::Removed { .. } => io::ErrorKind::NotFound,
            DiskError::Io { source, .. } => source.kind(),
            DiskError::GivenUp { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl Error for DiskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// Returns the text of an error with that of its source.
pub(super) fn describe(error: &DiskError) -> String {
    match error {
        DiskError::Io { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}
