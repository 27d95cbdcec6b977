//! Where a PEM text comes from (RFC 7468), and whether a file has changed.

use std::fmt;
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
#[cfg(windows)]
use std::os::windows::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::TlsError;

/// A file, or a text in memory.
#[derive(Clone)]
pub(super) enum Pem {
    File(PathBuf),
    Text(Vec<u8>),
}

impl Pem {
    /// Returns the bytes. Blocks on a file.
    pub(super) fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::File(path) => fs::read(path).map_err(|e| TlsError::Read(path.clone(), e)),
            Self::Text(text) => Ok(text.clone()),
        }
    }

    /// Returns the path, or `text` for a text, for errors.
    pub(super) fn place(&self, text: &str) -> String {
        self.path().map_or_else(|| text.to_owned(), |path| path.display().to_string())
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Debug for Pem {
    /// Shows no text: it may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.debug_tuple("Text").finish_non_exhaustive(),
        }
    }
}

/// Changes when a file is replaced or written to. The inode detects a link that leads to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: (u64, u64),
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> Option<Self> {
        let now = fs::metadata(path).ok()?;
        Some(Self { inode: (now.dev(), now.ino()), len: now.len(), changed: (now.ctime(), now.ctime_nsec()) })
    }

    /// Without numbers of files, their times of creation tell them apart.
    #[cfg(windows)]
    pub(super) fn of(path: &Path) -> Option<Self> {
        let now = fs::metadata(path).ok()?;
        let changed = (now.last_write_time().cast_signed(), 0);
        Some(Self { inode: (now.creation_time(), 0), len: now.len(), changed })
    }
}
