//! The destination of contents: a new file that replaces the old one, or the end of an existing file.
//!
//! All calls wait for the disk, and run in jobs.

use std::fmt;
use std::io;

use bytes::Bytes;

use super::Metadata;
use super::change::Change;
use super::durability::Durability;
use super::error::{Result, Step};
use super::preserve::{Old, Preserve};
use super::target::Target;
use super::temp_file::TempFile;
use super::work::Caller;
use crate::sys::call;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, OwnedFd};
use crate::sys::file;
use crate::sys::file::Access;
use crate::sys::lock::Locked;
use crate::sys::status::Statx;

/// Where contents go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SinkMode {
    /// A new file that replaces an old one.
    #[default]
    Replace,
    /// A new file whose name must be unused.
    New,
    /// The end of the file, which must be at this offset. 0 creates a missing file.
    End(u64),
}

#[derive(Debug)]
#[cfg_attr(not(portable), expect(clippy::large_enum_variant, reason = "its owner is boxed"))]
pub(super) enum FileSink {
    New(NewFile),
    End(End),
}

impl FileSink {
    pub(super) fn open(change: &Change, place: SinkMode) -> Result<Self> {
        match place {
            SinkMode::Replace => NewFile::open(change.clone(), false).map(Self::New),
            SinkMode::New => NewFile::open(change.clone(), true).map(Self::New),
            SinkMode::End(offset) => End::open(change, offset).map(Self::End),
        }
    }

    /// Allocates space for `len` bytes. Fails if there is none; ignores file systems that cannot allocate.
    pub(super) fn reserve(&mut self, len: u64) -> Result<()> {
        let (target, fd, at, reserved) = match self {
            Self::New(new) => (new.temp_file.target(), new.temp_file.fd(), new.written, &mut new.reserved),
            Self::End(end) => (&end.target, end.fd.as_fd(), end.at, &mut end.reserved),
        };
        if len == 0 {
            return Ok(());
        }
        match file::reserve(fd, at, len).map_err(|e| (Errno::from_io_error(&e), e)) {
            Ok(()) => *reserved = at + len,
            Err((Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG), e)) => return Err(target.at(Step::Allocate)(e)),
            // The writes report errors.
            Err(_) => {}
        }
        Ok(())
    }

    pub(super) fn write(&mut self, pieces: &[Bytes], caller: &Caller) -> Result<()> {
        match self {
            Self::New(new) => new.write(pieces, caller),
            Self::End(end) => end.write(pieces, caller),
        }
    }

    pub(super) fn finish(self, caller: &Caller) -> Result<()> {
        match self {
            Self::New(new) => new.finish(caller),
            Self::End(end) => end.finish(),
        }
    }

    /// Removes what was written.
    pub(super) fn undo(self) -> Result<()> {
        match self {
            Self::New(_) => Ok(()),
            Self::End(end) => end.undo(),
        }
    }
}

/// A file that gets its name when it is complete. Dropping it removes it.
#[derive(Debug)]
pub(super) struct NewFile {
    temp_file: TempFile,
    change: Change,
    old: Option<(Statx, Option<OwnedFd>)>,
    must_be_new: bool,
    written: u64,
    /// End of the allocated space.
    reserved: u64,
}

impl NewFile {
    pub(super) fn open(change: Change, must_be_new: bool) -> Result<Self> {
        let (target, found) = change.target()?;
        if must_be_new && found.is_some() {
            return Err(target.at(Step::Create)(Errno::EXIST.into()));
        }
        let keep = change.attributes.keep;
        let old = match found.filter(|_| keep != Preserve::Nothing) {
            None => None,
            Some(found) => match target.open_old(Access::Read) {
                Ok((fd, statx)) => Some((statx, Some(fd))),
                // If the file is unreadable, so are its attributes.
                Err(_) if keep == Preserve::Possible => Some((found, None)),
                Err(e) => return Err(e),
            },
        };
        let temp_file = TempFile::new(target, change.attributes.temp_mode(old.is_some()))?;
        Ok(Self { temp_file, change, old, must_be_new, written: 0, reserved: 0 })
    }

    pub(super) fn write(&mut self, pieces: &[Bytes], caller: &Caller) -> Result<()> {
        caller.write(self.temp_file.target(), self.temp_file.fd(), pieces, &mut self.written)
    }

    pub(super) fn temp_file(&self) -> &TempFile {
        &self.temp_file
    }

    pub(super) fn finish(self, caller: &Caller) -> Result<()> {
        let target = self.temp_file.target();
        if self.reserved > self.written {
            file::set_len(self.temp_file.fd(), self.written).map_err(target.at(Step::SetLength))?;
        }
        let old = self.old.as_ref().map(|(statx, fd)| Old { statx, fd: fd.as_ref().map(AsFd::as_fd) });
        self.change.attributes.apply(target, old, self.temp_file.fd())?;
        match self.must_be_new {
            true => self.temp_file.publish_new(self.change.durability, caller),
            false => self.temp_file.publish(self.change.durability, caller, |_| Ok(())),
        }
    }
}

/// The end of a file, locked against other writers of this kind. Written bytes stay.
#[derive(Debug)]
pub(super) struct End {
    target: Target,
    fd: Locked,
    durability: Durability,
    is_new: bool,
    start: u64,
    at: u64,
    /// End of the allocated space.
    reserved: u64,
}

impl End {
    fn open(change: &Change, offset: u64) -> Result<Self> {
        let (target, fd, is_new) = match offset {
            0 => {
                let (target, fd, is_new) =
                    change.open_or_create(Access::Write, change.attributes.temp_mode(false), || {})?;
                if is_new {
                    change.attributes.apply(&target, None, fd.as_fd())?;
                }
                (target, fd, is_new)
            }
            _ => {
                let (target, _) = change.target()?;
                let (fd, _) = target.open_old(Access::Write)?;
                (target, fd, false)
            }
        };
        // An earlier writer may still have a job in progress. File systems without locks are used without.
        let Some(fd) = Locked::where_possible(fd) else {
            let busy = io::Error::new(io::ErrorKind::ResourceBusy, "another writer has locked the file");
            return Err(target.at(Step::Open)(busy));
        };
        let opened = call::status(fd.as_fd()).map_err(target.at(Step::Inspect))?;
        // The writer that had the lock before may have removed the file.
        if !target.status()?.is_some_and(|found| Metadata::new(&found).is_same_file(&Metadata::new(&opened))) {
            let removed = io::Error::new(io::ErrorKind::ResourceBusy, "the file was removed or replaced meanwhile");
            return Err(target.at(Step::Open)(removed));
        }
        let len = opened.stx_size;
        if len != offset {
            let wrong = io::Error::new(io::ErrorKind::InvalidInput, WrongOffset { offset, len });
            return Err(target.at(Step::Inspect)(wrong));
        }
        Ok(Self { target, fd, durability: change.durability, is_new, start: len, at: len, reserved: 0 })
    }

    fn write(&mut self, pieces: &[Bytes], caller: &Caller) -> Result<()> {
        caller
            .write(&self.target, self.fd.as_fd(), pieces, &mut self.at)
            .map_err(|e| e.after_writing(self.at - self.start))
    }

    fn finish(mut self) -> Result<()> {
        self.release();
        let synced = self.target.sync_in_place(self.fd.as_fd(), self.durability);
        synced.map_err(|e| e.after_writing(self.at - self.start))
    }

    fn undo(mut self) -> Result<()> {
        // The drop must not extend the file again.
        (self.at, self.reserved) = (self.start, 0);
        file::set_len(self.fd.as_fd(), self.start).map_err(self.target.at(Step::SetLength))?;
        let ours = Metadata::new(&call::status(self.fd.as_fd()).map_err(self.target.at(Step::Inspect))?);
        let is_there = self.target.status()?.is_some_and(|found| Metadata::new(&found).is_same_file(&ours));
        if self.is_new && is_there {
            file::unlink_at(self.target.dir(), self.target.name()).map_err(self.target.at(Step::Remove))?;
        }
        Ok(())
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.reserved) > self.at {
            // Only allocated space is left over; the length of the file is correct.
            let _ = file::set_len(self.fd.as_fd(), self.at);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.release();
    }
}

/// Cause of the error if the offset is not the length of the file.
#[derive(Debug)]
pub(crate) struct WrongOffset {
    offset: u64,
    pub(crate) len: u64,
}

impl fmt::Display for WrongOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the offset is {}, but the file has {} bytes", self.offset, self.len)
    }
}

impl std::error::Error for WrongOffset {}
