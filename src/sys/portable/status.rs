//! The status of a file, by the names of statx(2).

use std::fs;
use std::io;

use cap_fs_ext::MetadataExt as _;
use cap_primitives::fs::Metadata;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statx {
    pub(crate) stx_dev_major: u32,
    pub(crate) stx_dev_minor: u32,
    pub(crate) stx_ino: u64,
    pub(crate) stx_nlink: u32,
    pub(crate) stx_mode: u16,
    pub(crate) stx_uid: u32,
    pub(crate) stx_gid: u32,
    pub(crate) stx_size: u64,
    pub(crate) stx_mtime: StatxTimestamp,
    pub(crate) stx_ctime: StatxTimestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatxTimestamp {
    pub(crate) tv_sec: i64,
    pub(crate) tv_nsec: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    RegularFile,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Unknown,
}

const TYPES: [(u32, FileType); 7] = [
    (0o100_000, FileType::RegularFile),
    (0o040_000, FileType::Directory),
    (0o120_000, FileType::Symlink),
    (0o010_000, FileType::Fifo),
    (0o140_000, FileType::Socket),
    (0o020_000, FileType::CharacterDevice),
    (0o060_000, FileType::BlockDevice),
];

impl FileType {
    pub(crate) fn from_raw_mode(mode: u32) -> Self {
        TYPES.iter().find(|(bits, _)| mode & 0o170_000 == *bits).map_or(Self::Unknown, |(_, kind)| *kind)
    }
}

impl Statx {
    pub(super) fn of_file(file: &fs::File) -> io::Result<Self> {
        Ok(Self::new(&Metadata::from_file(file)?))
    }

    pub(super) fn new(found: &Metadata) -> Self {
        let (device, links) = (found.dev(), found.nlink());
        let status = Self {
            stx_dev_major: (device >> 32) as u32,
            stx_dev_minor: device as u32,
            stx_ino: found.ino(),
            stx_nlink: u32::try_from(links).unwrap_or(u32::MAX),
            stx_size: found.len(),
            ..Self::default()
        };
        status.with_the_rest(found)
    }

    #[cfg(unix)]
    fn with_the_rest(self, found: &Metadata) -> Self {
        use cap_primitives::fs::MetadataExt as _;
        let time = |seconds, nanos| StatxTimestamp { tv_sec: seconds, tv_nsec: nanos as u32 };
        let (changed, modified) = (time(found.ctime(), found.ctime_nsec()), time(found.mtime(), found.mtime_nsec()));
        let (mode, uid, gid) = (found.mode() as u16, found.uid(), found.gid());
        Self { stx_mode: mode, stx_uid: uid, stx_gid: gid, stx_ctime: changed, stx_mtime: modified, ..self }
    }

    /// Files have no owner by number and no bits of permission. No time of change is reported either; the time of the
    /// creation, which a replaced file changes, stands for it.
    #[cfg(windows)]
    fn with_the_rest(self, found: &Metadata) -> Self {
        use cap_primitives::fs::MetadataExt as _;
        let kind = match () {
            () if found.is_dir() => 0o040_000,
            () if found.is_symlink() => 0o120_000,
            () if found.is_file() => 0o100_000,
            () => 0,
        };
        // Windows counts units of 100 ns from 1601.
        let time = |units: u64| {
            let units = units.cast_signed() - 116_444_736_000_000_000;
            let (seconds, rest) = (units.div_euclid(10_000_000), units.rem_euclid(10_000_000));
            StatxTimestamp { tv_sec: seconds, tv_nsec: rest as u32 * 100 }
        };
        let (created, modified) = (time(found.creation_time()), time(found.last_write_time()));
        Self { stx_mode: kind | 0o666, stx_ctime: created, stx_mtime: modified, ..self }
    }
}
