//! Blocking steps of a copy, as short jobs for the blocking pool.
//!
//! A job owns its files and pipe. The copy keeps the job until it has polled the result.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::pipes::Pipe;
use super::plan::{CopyPath, Facts, plan};
use crate::buf::lease;
use crate::sys::errno::Errno;
use crate::sys::fd::AsFd;
use crate::sys::{call, file};

/// Maximum number of bytes that one job moves between files.
pub(super) const STEP: u64 = 8 << 20;
const PIECE: usize = 256 << 10;

#[derive(Debug)]
pub(super) enum Done {
    /// The source is in the page cache up to this offset.
    Warmed(io::Result<u64>),
    Moved(Moved),
    /// The pipe, the number of bytes moved from it to the file, and the outcome.
    Emptied(Pipe, u64, io::Result<()>),
}

#[derive(Debug)]
pub(super) struct Between {
    pub(super) from: (Arc<File>, u64),
    pub(super) to: (Arc<File>, u64),
    /// Maximum number of bytes to move, not zero.
    pub(super) len: u64,
    pub(super) facts: Facts,
}

#[derive(Debug)]
pub(super) struct Moved {
    pub(super) bytes: Vec<(CopyPath, u64)>,
    pub(super) calls: u64,
    pub(super) ended: bool,
    pub(super) refused: Vec<CopyPath>,
    pub(super) result: io::Result<()>,
}

/// Returns whether an error means that this path is not supported, while another may be.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM, Errno::XDEV, Errno::BADF];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

pub(super) fn warm(file: &File, at: u64, len: u64) -> Done {
    Done::Warmed(call::warm_blocking(file.as_fd(), at, len).map(|()| at + len))
}

/// Moves the bytes in the pipe to a position in a file. May block on the disk if the page cache is full.
pub(super) fn empty(mut pipe: Pipe, to: &File, at: u64) -> Done {
    let mut moved = 0;
    while pipe.pending() > 0 {
        match pipe.empty(to.as_fd(), Some(at + moved)) {
            Ok(0) => return Done::Emptied(pipe, moved, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => moved += n as u64,
            Err(e) => return Done::Emptied(pipe, moved, Err(e)),
        }
    }
    Done::Emptied(pipe, moved, Ok(()))
}

impl Between {
    pub(super) fn run(mut self) -> Done {
        let mut moved = Moved { bytes: Vec::new(), calls: 0, ended: false, refused: Vec::new(), result: Ok(()) };
        while self.len > 0 && !moved.ended && moved.result.is_ok() {
            let way = plan(&self.facts);
            match self.step(way, &mut moved) {
                Ok(n) => {
                    moved.bytes.push((way, n));
                    self.from.1 += n;
                    self.to.1 += n;
                    self.len = self.len.saturating_sub(n);
                }
                Err(e) if way != CopyPath::Pump && is_refusal(&e) => {
                    moved.refused.push(way);
                    self.facts.without = self.facts.without.with(way);
                }
                Err(e) => moved.result = Err(e),
            }
        }
        Done::Moved(moved)
    }

    fn step(&self, way: CopyPath, moved: &mut Moved) -> io::Result<u64> {
        let ((from, at), (to, to_at)) = ((self.from.0.as_fd(), self.from.1), (self.to.0.as_fd(), self.to.1));
        moved.calls += 1;
        match way {
            CopyPath::Clone => {
                file::clone_all(from, to, to_at)?;
                moved.ended = true;
                Ok(call::status(to)?.stx_size)
            }
            CopyPath::CopyFileRange => match file::copy_range((from, at), (to, to_at), self.len as usize)? {
                // Either the end, or a file whose contents are generated when read. Only a read can distinguish them.
                0 => match call::read_blocking(from, &mut [0], at)? {
                    0 => {
                        moved.calls += 1;
                        moved.ended = true;
                        Ok(0)
                    }
                    _ => Err(Errno::OPNOTSUPP.into()),
                },
                n => Ok(n as u64),
            },
            _ => self.pump(moved),
        }
    }

    fn pump(&self, moved: &mut Moved) -> io::Result<u64> {
        let len = self.len.min(PIECE as u64) as usize;
        let mut piece = lease(len);
        let n = piece
            .read_exactly_with(|spare| call::read_blocking(self.from.0.as_fd(), &mut spare[..len], self.from.1))?;
        moved.ended = n == 0;
        let mut written = 0;
        while written < n {
            moved.calls += 1;
            let rest = &piece.as_ref()[written..];
            match call::write_blocking(self.to.0.as_fd(), rest, self.to.1 + written as u64) {
                // What was written counts. The next step returns the error.
                Ok(0) | Err(_) if written > 0 => break,
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                accepted => written += accepted?,
            }
        }
        Ok(written as u64)
    }
}
