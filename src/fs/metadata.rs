//! Identity and version of a file.

use std::io;
use std::time::{Duration, SystemTime};

use crate::sys::status::{FileType, Statx, StatxTimestamp};

/// Metadata of a file at one moment. Two equal values mean the same file with the same contents, within the resolution
/// of the file system clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    device: (u32, u32),
    inode: u64,
    len: u64,
    modified: Stamp,
    changed: Stamp,
    mode: u16,
}

/// Seconds and nanoseconds; the seconds may be negative.
type Stamp = (i64, u32);

impl Metadata {
    pub(crate) fn new(statx: &Statx) -> Self {
        let stamp = |t: &StatxTimestamp| (t.tv_sec, t.tv_nsec);
        Self {
            device: (statx.stx_dev_major, statx.stx_dev_minor),
            inode: statx.stx_ino,
            len: statx.stx_size,
            modified: stamp(&statx.stx_mtime),
            changed: stamp(&statx.stx_ctime),
            mode: statx.stx_mode,
        }
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "metadata is not a collection")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the inode number in the file system.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the time of the last change of the contents; `None` if it is before 1970.
    pub fn modified(&self) -> Option<SystemTime> {
        let (seconds, nanos) = self.modified;
        let since = Duration::new(u64::try_from(seconds).ok()?, nanos);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }

    /// Returns the nanoseconds since 1970 of the last change of the contents (`mtime`), which programs can set.
    pub(crate) fn modified_nanos(&self) -> i128 {
        nanos(self.modified)
    }

    /// Returns the nanoseconds since 1970 of the last change of the inode (`ctime`), which only the kernel sets.
    pub(crate) fn changed_nanos(&self) -> i128 {
        nanos(self.changed)
    }

    /// Returns whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    /// Returns whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(crate) fn is_link(&self) -> bool {
        self.kind() == FileType::Symlink
    }

    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns an error that says what the file is, unless it is a regular file.
    pub(crate) fn must_be_file(&self, kind: io::ErrorKind) -> io::Result<()> {
        match self.is_file() {
            true => Ok(()),
            false => Err(io::Error::new(kind, format!("{}, not a regular file", self.what()))),
        }
    }

    pub(crate) fn what(&self) -> &'static str {
        match self.kind() {
            FileType::RegularFile => "a regular file",
            FileType::Directory => "a directory",
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a FIFO",
            FileType::Socket => "a socket",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            FileType::Unknown => "of an unknown kind",
        }
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode.into())
    }
}

fn nanos((seconds, nanos): Stamp) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}
