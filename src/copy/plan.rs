//! Selection of the path of the next bytes from the facts about both sides. A pure table.
//!
//! | from \ to | file | pipe | socket | other |
//! |---|---|---|---|---|
//! | file | clone the whole, else `copy_file_range`, else pump | `sendfile` | `sendfile`; large: `splice` | pump |
//! | pipe, socket: few bytes at a time | pump | pump | pump | pump |
//! | pipe, socket: many | `splice` | `splice` | `splice` | pump |
//! | other | pump | pump | pump | pump |
//!
//! A refused path is replaced by the next one; reading and writing is never refused.

use std::fmt;

/// The path that bytes take from one side to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyPath {
    /// The file system (btrfs, xfs, and others) shares the blocks between both files,
    /// [ioctl_ficlonerange(2)](https://man7.org/linux/man-pages/man2/ioctl_ficlonerange.2.html).
    Clone,
    /// The kernel copies from one file to the other,
    /// [copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html).
    CopyFileRange,
    /// The kernel sends pages of the file, [sendfile(2)](https://man7.org/linux/man-pages/man2/sendfile.2.html).
    Sendfile,
    /// The kernel moves pages through a pipe, [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html).
    Splice,
    /// The process reads the bytes and writes them: for unrecognised streams, for files that are not regular files, for
    /// targets that are open for appending, and where the kernel refused the other paths.
    Pump,
}

impl CopyPath {
    pub(super) const ALL: [Self; 5] = [Self::Clone, Self::CopyFileRange, Self::Sendfile, Self::Splice, Self::Pump];
}

impl fmt::Display for CopyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clone => "clone",
            Self::CopyFileRange => "copy_file_range",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Pump => "read and write",
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths(u8);

impl Paths {
    pub(super) fn with(self, path: CopyPath) -> Self {
        Self(self.0 | 1 << path as u8)
    }

    pub(super) fn has(self, path: CopyPath) -> bool {
        self.0 & 1 << path as u8 != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Pipe,
    Socket,
    /// A stream that the kernel does not know, such as a TLS stream; a file that is not regular; or a target that is
    /// open for appending, which `copy_file_range` and `splice` refuse.
    Other,
}

/// Remaining bytes of a file at which an own pipe beats the pipe of `sendfile`, which holds 64 KiB.
const SPLICE_MIN: u64 = 256 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) from: Kind,
    pub(super) to: Kind,
    /// Remaining bytes of the source file. 0 if the length is unknown, as for files of `/proc`.
    pub(super) left: u64,
    /// Whether all of a file is copied into an empty one, without limit and rate.
    pub(super) whole: bool,
    pub(super) flood: bool,
    pub(super) without: Paths,
}

pub(super) fn plan(facts: &Facts) -> CopyPath {
    let first = |ways: &[CopyPath]| ways.iter().copied().find(|&way| !facts.without.has(way)).unwrap_or(CopyPath::Pump);
    match (facts.from, facts.to) {
        (Kind::Other, _) | (_, Kind::Other) => CopyPath::Pump,
        (Kind::File, _) if facts.left == 0 => CopyPath::Pump,
        (Kind::File, Kind::File) if facts.whole => first(&[CopyPath::Clone, CopyPath::CopyFileRange]),
        (Kind::File, Kind::File) => first(&[CopyPath::CopyFileRange]),
        (Kind::File, Kind::Socket) if facts.left >= SPLICE_MIN => first(&[CopyPath::Splice, CopyPath::Sendfile]),
        (Kind::File, Kind::Pipe | Kind::Socket) => first(&[CopyPath::Sendfile, CopyPath::Splice]),
        (Kind::Pipe | Kind::Socket, _) if facts.flood => first(&[CopyPath::Splice]),
        (Kind::Pipe | Kind::Socket, _) => CopyPath::Pump,
    }
}

#[cfg(test)]
mod tests;
