//! A header before the contents of a file.

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::io::Errno;

use super::Status;
use super::body::{Body, Moved, OnProgress, changed};
use super::durability::Durability;
use super::error::{Result, Step};
use super::preserve::{Metadata, Old, Preserve};
use super::target::{Target, refused};
use super::temp_file::TempFile;
use super::work::{self, Caller};
use crate::sys::file;
use crate::sys::file::Access;

/// Puts `header` before the contents of a file of any size: [`Prepend`] with its defaults.
///
/// After `Ok` the new file survives a power cut. Whoever reads meanwhile, and whoever comes after a crash at any moment,
/// finds the file with the header or without it, whole.
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
///
/// # Errors
///
/// As [`Prepend::run`].
pub async fn prepend(path: impl AsRef<Path>, header: impl Into<Bytes>) -> Result<Prepended> {
    Prepend::new(path).run(header).await
}

/// Where the header comes from, and where the contents go. What each way leaves after a crash differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// Makes a new file of the header and the old contents, and renames it over the old one, as
    /// [`Replace`](super::Replace) does. **After a crash** at any moment the file is the old one or the new one, whole.
    ///
    /// The contents are moved by the kernel: shared with the old file where the file system can and the header is a
    /// multiple of its block size ([ioctl_ficlonerange(2)](https://man7.org/linux/man-pages/man2/ioctl_ficlonerange.2.html);
    /// xfs, btrfs), else copied by
    /// [copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html), else read and written 256 KiB at
    /// a time. Unless they are shared this needs room on the disk for a second file, and holes become zeros.
    ///
    /// Whoever has the file open keeps the old one: what a logger appends to it from then on is lost with it. A change
    /// before the rename is an error ([`Step::Recheck`]) as far as the clock of the file system can tell, some
    /// milliseconds on older kernels; nothing finds one between that look and the rename.
    #[default]
    Atomic,
    /// Overwrites the first `reserved` bytes, an area that whoever made the file has left for the header. The header must
    /// have exactly that length, in bytes. It is one write.
    ///
    /// **After a crash** before `Ok` the area may be old, new, or part of each. The rest of the file is not touched.
    InPlace {
        /// Length of the area in bytes.
        reserved: u64,
    },
    /// Has the file system move all blocks of the file back by the length of the header, which must be a multiple of its
    /// block size: `FALLOC_FL_INSERT_RANGE` of [fallocate(2)](https://man7.org/linux/man-pages/man2/fallocate.2.html), ext4
    /// since Linux 4.2 and xfs since 4.1. The contents are not copied; it takes as long as the file has fragments, and
    /// pages in the page cache that are not on the disk yet are written first. Those who have the file open have the new
    /// one, and appending goes on undisturbed.
    ///
    /// **After a crash** before `Ok` there may be zeros in the place of the header, or part of it; readers may see the
    /// same for a moment. A power cut while the blocks are moved can leave a file of many fragments with only the later
    /// ones moved: nothing is overwritten, but the zeros then lie between the contents instead of before them.
    InsertRange,
}

/// How to put a header before the contents of a file.
///
/// All of it is one job on the blocking pool. What [`Replace`](super::Replace) says about symbolic links, hard links and
/// leftovers holds for [`Strategy::Atomic`] too; the others change the file itself, and so under all its names.
#[must_use = "nothing is done until `run`"]
pub struct Prepend {
    path: PathBuf,
    strategy: Strategy,
    durability: Durability,
    follow_link: bool,
    keep: Preserve,
    on_progress: Option<OnProgress>,
}

/// What [`Prepend::run`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepended {
    body: u64,
    moved: Moved,
}

impl Prepended {
    /// Length of the contents behind the header, in bytes.
    pub fn body_len(&self) -> u64 {
        self.body
    }

    /// How they got there.
    pub fn moved(&self) -> Moved {
        self.moved
    }
}

impl fmt::Debug for Prepend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepend")
            .field("path", &self.path)
            .field("strategy", &self.strategy)
            .field("durability", &self.durability)
            .field("follow_link", &self.follow_link)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

impl Prepend {
    /// To the file at `path`, which must exist.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            strategy: Strategy::default(),
            durability: Durability::default(),
            follow_link: false,
            keep: Preserve::default(),
            on_progress: None,
        }
    }

    /// Which way to go. [`Strategy::Atomic`] by default.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// What is promised about a power cut. [`Durability::Full`] by default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether a symbolic link at the path leads to the file that is meant. Refused by default.
    pub fn follow_link(mut self, follow: bool) -> Self {
        self.follow_link = follow;
        self
    }

    /// What the new file of [`Strategy::Atomic`] takes over from the old one. [`Preserve::All`] by default.
    pub fn keep(mut self, keep: Preserve) -> Self {
        self.keep = keep;
        self
    }

    /// Calls `tell` on the thread that works, with the bytes of the contents that were moved and their whole number:
    /// after every 8 MiB, or less where the kernel does less at a time. Contents that stay where they are take no time,
    /// and nothing is told.
    pub fn on_progress(mut self, tell: impl FnMut(u64, u64) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(tell));
        self
    }

    /// Puts `header` there. An empty one changes nothing, but the file is looked at.
    ///
    /// # Errors
    ///
    /// The error names the [step](Step). With [`Strategy::Atomic`] the old file is left as it was and no other beside it,
    /// as with [`Replace::run`](super::Replace::run). `ErrorKind::InvalidInput` for a header of a length that the strategy
    /// does not take, with the length that it would; `ErrorKind::Unsupported`, with the number of the error kept, for a
    /// file system without [`Strategy::InsertRange`]. Where writing the header fails after blocks were moved they are
    /// moved back.
    ///
    /// # Cancellation
    ///
    /// With [`Strategy::Atomic`], dropping the future before the rename leaves the old file; the work ends after the
    /// piece it is at. The others are done once they have started.
    ///
    /// # Panics
    ///
    /// If what was given to [`on_progress`](Self::on_progress) does; the old file is left then as well.
    pub async fn run(mut self, header: impl Into<Bytes>) -> Result<Prepended> {
        let header = header.into();
        work::run(&self.path.clone(), move |caller| {
            let (target, found) = Target::open(&self.path, self.follow_link)?;
            let missing = || target.at(Step::Inspect)(Errno::NOENT.into());
            let body = found.ok_or_else(missing)?.stx_size;
            let stayed = Prepended { body, moved: Moved::Stayed };
            match self.strategy {
                Strategy::InPlace { reserved } => overwrite(&target, &header, reserved, self.durability),
                _ if header.is_empty() => Ok(stayed),
                Strategy::Atomic => self.rewrite(target, header, caller),
                Strategy::InsertRange => insert(&target, &header, self.durability),
            }
        })
        .await
    }

    fn rewrite(&mut self, target: Target, header: Bytes, caller: &Caller) -> Result<Prepended> {
        let (from, statx) = target.open_old(Access::Read)?;
        let metadata = Metadata { keep: self.keep, mode: None };
        let temp_file = TempFile::new(target, metadata.draft_mode(true))?;
        let at = temp_file.write(&[header], 0, caller)?;
        let body = Body { from: from.as_fd(), len: statx.stx_size };
        let moved = body.move_to(&temp_file, at, caller, self.on_progress.as_mut())?;
        metadata.apply(temp_file.target(), Some(Old { statx: &statx, fd: Some(from.as_fd()) }), temp_file.fd())?;
        let len = body.len;
        temp_file.publish(self.durability, caller, |target| {
            let found = target.look()?.map(|found| Status::new(&found));
            if found == Some(Status::new(&statx)) { Ok(()) } else { Err(target.at(Step::Recheck)(changed())) }
        })?;
        Ok(Prepended { body: len, moved })
    }
}

/// [`Strategy::InPlace`].
fn overwrite(target: &Target, header: &[u8], reserved: u64, durability: Durability) -> Result<Prepended> {
    let invalid = |message: String| Err(target.at(Step::Inspect)(refused(&message)));
    let (fd, statx) = target.open_old(Access::Change)?;
    if header.len() as u64 != reserved {
        return invalid(format!("the header has {} bytes, the area reserved for it {reserved}", header.len()));
    }
    let Some(body) = statx.stx_size.checked_sub(reserved) else {
        return invalid(format!("it has {} bytes and no area of {reserved}", statx.stx_size));
    };
    write_header(&fd, header).map_err(target.at(Step::Write))?;
    durability.sync_in_place(fd.as_fd()).map_err(target.at(Step::Sync))?;
    Ok(Prepended { body, moved: Moved::Stayed })
}

/// [`Strategy::InsertRange`].
fn insert(target: &Target, header: &[u8], durability: Durability) -> Result<Prepended> {
    let (fd, statx) = target.open_old(Access::Change)?;
    let len = header.len() as u64;
    // An empty file has nothing to move, and the kernel refuses to.
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
    durability.sync_in_place(fd.as_fd()).map_err(target.at(Step::Sync))?;
    Ok(Prepended { body: statx.stx_size, moved: Moved::Stayed })
}

fn write_header(fd: impl AsFd, header: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < header.len() {
        at += file::write_at(fd.as_fd(), &[IoSlice::new(&header[at..])], at as u64)?;
    }
    Ok(())
}
