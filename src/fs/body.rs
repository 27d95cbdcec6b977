//! Moves the contents of one file into another.
//!
//! Each method continues where the previous one stopped, whatever the reason. If the disk has failed, the last method
//! gets the error again and reports it.

use std::fmt;
use std::io;

use super::error::{Result, Step};
use super::temp_file::TempFile;
use super::work::Caller;
use crate::buf::lease;
use crate::sys::fd::BorrowedFd;
use crate::sys::{call, file};

/// How the contents of a file were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moved {
    /// They stayed in place, or there were none.
    Stayed,
    /// The file system shares the blocks between the old file and the new one.
    Cloned,
    /// The kernel copied them, without bringing them into this process.
    Copied,
    /// All or the last part was read and written.
    Pumped,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stayed => "stayed",
            Self::Cloned => "cloned",
            Self::Copied => "copied",
            Self::Pumped => "pumped",
        })
    }
}

pub(super) type OnProgress = Box<dyn FnMut(u64, u64) + Send>;

/// Number of bytes the kernel copies in one call, between checks for cancellation.
const COPY_PIECE: usize = 8 << 20;
const PUMP_PIECE: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Body<'a> {
    pub(super) from: BorrowedFd<'a>,
    pub(super) len: u64,
}

impl Body<'_> {
    /// Moves the whole body to offset `at` of the temporary file, which has no bytes there yet.
    pub(super) fn move_to(
        &self,
        temp_file: &TempFile,
        at: u64,
        caller: &Caller,
        mut on_progress: Option<&mut OnProgress>,
    ) -> Result<Moved> {
        let mut told = |moved| {
            if let Some(tell) = &mut on_progress {
                tell(moved, self.len);
            }
        };
        if self.len == 0 {
            return Ok(Moved::Stayed);
        }
        if self.clone_to(temp_file, at).is_ok() {
            // The kernel clones what there is.
            if call::status(temp_file.fd()).map_err(temp_file.target().at(Step::Inspect))?.stx_size < at + self.len {
                return Err(temp_file.target().at(Step::Recheck)(changed()));
            }
            told(self.len);
            return Ok(Moved::Cloned);
        }
        let (mut moved, mut way) = (0, Moved::Copied);
        while moved < self.len {
            caller.waits(temp_file.target())?;
            let n = match way {
                Moved::Copied => self.copy(temp_file, at, moved).unwrap_or_default(),
                _ => self.pump(temp_file, at, moved, caller)?,
            };
            match (n, way) {
                (0, Moved::Copied) => way = Moved::Pumped,
                (0, _) => return Err(temp_file.target().at(Step::Recheck)(changed())),
                _ => {
                    moved += n;
                    told(moved);
                }
            }
        }
        Ok(way)
    }

    fn clone_to(&self, temp_file: &TempFile, at: u64) -> io::Result<()> {
        if !at.is_multiple_of(file::block_size(self.from)?) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        file::clone_all(self.from, temp_file.fd(), at)
    }

    fn copy(&self, temp_file: &TempFile, at: u64, moved: u64) -> io::Result<u64> {
        let len = (self.len - moved).min(COPY_PIECE as u64);
        file::copy_range((self.from, moved), (temp_file.fd(), at + moved), len as usize).map(|n| n as u64)
    }

    fn pump(&self, temp_file: &TempFile, at: u64, moved: u64, caller: &Caller) -> Result<u64> {
        let len = (self.len - moved).min(PUMP_PIECE as u64) as usize;
        let mut piece = lease(len);
        let read = piece.read_exactly_with(|spare| call::read_blocking(self.from, &mut spare[..len], moved));
        read.map_err(temp_file.target().at(Step::Move))?;
        temp_file.write(&[piece], at + moved, caller)
    }
}

pub(super) fn changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        "the file changed during the operation and was left unchanged; try again",
    )
}

#[cfg(test)]
mod tests;
