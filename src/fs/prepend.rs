//! Inserts a header before the contents of a file.

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::path::Path;

use bytes::Bytes;

use super::Metadata;
use super::body::{Body, Moved, OnProgress, changed};
use super::change::Change;
use super::durability::Durability;
use super::error::{Result, Step};
use super::preserve::{Old, Preserve};
use super::target::{Target, refused};
use super::temp_file::TempFile;
use super::work::{self, Caller};
use crate::sys::errno::Errno;
use crate::sys::fd::AsFd;
use crate::sys::file;
use crate::sys::file::Access;

/// Puts `header` before the contents of a file of any size: [`Prepend`] with its defaults.
///
/// After `Ok` the new file survives a power cut. Readers find the complete file, either with the header or without it,
/// even after a crash at any moment. The file must exist: use [`replace`](super::replace()) or
/// [`append`](super::append()) to create one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data.csv");
/// # std::fs::write(&path, "1,2\n")?;
/// millstream::fs::prepend(&path, "a,b\n").await?;
/// assert_eq!(std::fs::read(&path)?, b"a,b\n1,2\n");
/// # Ok(())
/// # }
/// ```
pub async fn prepend(path: impl AsRef<Path>, header: impl Into<Bytes>) -> Result<Prepended> {
    Prepend::new(path).run(header).await
}

/// How the header is added. The strategies differ in their result after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrependStrategy {
    /// Creates a new file from the header and the old contents, and renames it over the old one, as
    /// [`Replace`](super::Replace) does. **After a crash** at any moment the file is completely the old or completely
    /// the new one.
    ///
    /// The kernel moves the contents. The blocks are shared with the old file if the file system supports it and the
    /// length of the header is a multiple of the block size
    /// ([ioctl_ficlonerange(2)](https://man7.org/linux/man-pages/man2/ioctl_ficlonerange.2.html); xfs, btrfs).
    /// Otherwise the contents are copied by
    /// [copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html), or else read and written 256
    /// KiB at a time. Unless blocks are shared, this needs disk space for a second file, and holes become zeros.
    ///
    /// Processes that have the file open keep the old one: later appends to it are lost. A change before the rename is
    /// an error ([`Step::Recheck`]), within the resolution of the file system clock, some milliseconds on older
    /// kernels. A change between that check and the rename is not detected.
    #[default]
    Atomic,
    /// Overwrites the first `reserved` bytes, an area that the creator of the file has reserved for the header. The
    /// header must have exactly that length, in bytes. This is one write.
    ///
    /// **After a crash** before `Ok` the area may be old, new, or part of each. The rest of the file is unchanged.
    InPlace {
        /// Length of the area in bytes.
        reserved: u64,
    },
    /// Moves all blocks of the file back by the length of the header, which must be a multiple of the block size:
    /// `FALLOC_FL_INSERT_RANGE` of [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html), ext4 since
    /// Linux 4.2 and xfs since 4.1. The contents are not copied; the time depends on the number of fragments, and dirty
    /// pages are written first. Processes that have the file open see the new one, and appending continues.
    ///
    /// **After a crash** before `Ok` the place of the header may contain zeros or part of the header; readers may see
    /// the same for a moment. A power cut during the move can leave a fragmented file with only its later blocks moved:
    /// nothing is overwritten, but the zeros then lie between the contents instead of before them.
    /// On other systems than Linux, fails with `ErrorKind::Unsupported`.
    InsertRange,
}

/// Options for putting a header before the contents of a file.
///
/// The work is one job on the blocking pool. The rules of [`Replace`](super::Replace) about symbolic links, hard links
/// and leftover files also apply to [`PrependStrategy::Atomic`]; the others change the file itself, under all its
/// names.
#[must_use = "nothing is done until `run`"]
pub struct Prepend {
    change: Change,
    strategy: PrependStrategy,
    on_progress: Option<OnProgress>,
}

/// Result of [`Prepend::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepended {
    body: u64,
    moved: Moved,
}

impl Prepended {
    /// Returns the length of the contents after the header, in bytes.
    pub fn body_len(&self) -> u64 {
        self.body
    }

    /// Returns how the contents were moved.
    pub fn moved(&self) -> Moved {
        self.moved
    }
}

impl fmt::Debug for Prepend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepend")
            .field("change", &self.change)
            .field("strategy", &self.strategy)
            .finish_non_exhaustive()
    }
}

impl Prepend {
    /// Prepends to the file at `path`, which must exist.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { change: Change::new(path.as_ref()), strategy: PrependStrategy::default(), on_progress: None }
    }

    /// Sets the strategy. [`PrependStrategy::Atomic`] by default.
    pub fn strategy(mut self, strategy: PrependStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the guarantee about power cuts. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.change.durability = durability;
        self
    }

    /// Sets whether a symbolic link at the path is followed. Refused by default.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.change.follow_link = follow;
        self
    }

    /// Sets the metadata that the new file of [`PrependStrategy::Atomic`] takes over from the old one.
    /// [`Preserve::All`] by default.
    pub fn keep(mut self, keep: Preserve) -> Self {
        self.change.attributes.keep = keep;
        self
    }

    /// Calls `tell` on the worker thread with the number of content bytes moved and the total, at least every 8 MiB.
    /// Not called for contents that stay in place.
    pub fn on_progress(mut self, tell: impl FnMut(u64, u64) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }

    /// Inserts `header`. An empty header changes nothing, but the file is checked.
    ///
    /// # Errors
    ///
    /// The error names the [step](Step). With [`PrependStrategy::Atomic`] the old file is unchanged and no other file
    /// remains. `ErrorKind::InvalidInput` if the strategy does not accept the length of the header; the message has the
    /// accepted length. `ErrorKind::Unsupported`, with the error number, if the file system does not support
    /// [`PrependStrategy::InsertRange`]. If writing the header fails after blocks were moved, they are moved back.
    ///
    /// # Cancel safety
    ///
    /// With [`PrependStrategy::Atomic`], dropping the future before the rename leaves the old file; the work ends after
    /// the current piece. The other strategies complete once they have started.
    ///
    /// # Panics
    ///
    /// Panics if the [`on_progress`](Self::on_progress) callback panics; the old file is then unchanged.
    pub async fn run(mut self, header: impl Into<Bytes>) -> Result<Prepended> {
        let header = header.into();
        work::run(&self.change.path.clone(), move |caller| {
            let (target, found) = self.change.target()?;
            let missing = || target.at(Step::Inspect)(Errno::NOENT.into());
            let body = found.ok_or_else(missing)?.stx_size;
            let stayed = Prepended { body, moved: Moved::Stayed };
            match self.strategy {
                PrependStrategy::InPlace { reserved } => overwrite(&target, &header, reserved, self.change.durability),
                _ if header.is_empty() => Ok(stayed),
                PrependStrategy::Atomic => self.rewrite(target, header, caller),
                PrependStrategy::InsertRange => insert(&target, &header, self.change.durability),
            }
        })
        .await
    }

    fn rewrite(&mut self, target: Target, header: Bytes, caller: &Caller) -> Result<Prepended> {
        let (from, statx) = target.open_old(Access::Read)?;
        let attributes = self.change.attributes;
        let temp_file = TempFile::new(target, attributes.temp_mode(true))?;
        let at = temp_file.write(&[header], 0, caller)?;
        let body = Body { from: from.as_fd(), len: statx.stx_size };
        let moved = body.move_to(&temp_file, at, caller, self.on_progress.as_mut())?;
        attributes.apply(temp_file.target(), Some(Old { statx: &statx, fd: Some(from.as_fd()) }), temp_file.fd())?;
        let len = body.len;
        temp_file.publish(self.change.durability, caller, |target| {
            let found = target.status()?.map(|found| Metadata::new(&found));
            if found == Some(Metadata::new(&statx)) { Ok(()) } else { Err(target.at(Step::Recheck)(changed())) }
        })?;
        Ok(Prepended { body: len, moved })
    }
}

fn overwrite(target: &Target, header: &[u8], reserved: u64, durability: Durability) -> Result<Prepended> {
    let invalid = |message: String| Err(target.at(Step::Inspect)(refused(&message)));
    let (fd, statx) = target.open_old(Access::Change)?;
    if header.len() as u64 != reserved {
        return invalid(format!("the header has {} bytes, the reserved area {reserved}", header.len()));
    }
    let Some(body) = statx.stx_size.checked_sub(reserved) else {
        return invalid(format!("the file has {} bytes and no reserved area of {reserved}", statx.stx_size));
    };
    write_header(&fd, header).map_err(target.at(Step::Write))?;
    target.sync_in_place(fd.as_fd(), durability)?;
    Ok(Prepended { body, moved: Moved::Stayed })
}

fn insert(target: &Target, header: &[u8], durability: Durability) -> Result<Prepended> {
    let (fd, statx) = target.open_old(Access::Change)?;
    let len = header.len() as u64;
    // An empty file has nothing to move, and the kernel refuses it.
    if statx.stx_size > 0 {
        let block = file::block_size(fd.as_fd()).map_err(target.at(Step::Inspect))?;
        if !len.is_multiple_of(block) {
            let message =
                format!("the header has {len} bytes, and only multiples of the block size, {block}, can be inserted");
            return Err(target.at(Step::Inspect)(refused(&message)));
        }
        file::insert_range(fd.as_fd(), len).map_err(target.at(Step::Move))?;
    }
    if let Err(e) = write_header(&fd, header) {
        let undone = if statx.stx_size > 0 { file::collapse_range(fd.as_fd(), len) } else { Ok(()) };
        return Err(target.at(Step::Write)(match undone {
            Ok(()) => e,
            Err(_) => io::Error::new(e.kind(), format!("{e}; {len} bytes of zeros are left at the start of the file")),
        }));
    }
    target.sync_in_place(fd.as_fd(), durability)?;
    Ok(Prepended { body: statx.stx_size, moved: Moved::Stayed })
}

fn write_header(fd: impl AsFd, header: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < header.len() {
        at += file::write_at(fd.as_fd(), &[IoSlice::new(&header[at..])], at as u64)?;
    }
    Ok(())
}
