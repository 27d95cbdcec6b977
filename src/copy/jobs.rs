//! What waits for a disk, as jobs for the blocking pool: steps of a copy, each short enough that nobody misses its end.
//!
//! A job owns what it works on, and what it has done is told by its result, which the copy keeps until it asks again.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::pipes::Pipe;
use super::plan::{Facts, Path, plan};
use crate::buf::lease;
use crate::sys::{call, file};

/// Most bytes that one job moves from a file to another.
pub(super) const STEP: u64 = 8 << 20;
/// Bytes that are read and written at a time.
const PIECE: usize = 256 << 10;

/// What a job has done.
#[derive(Debug)]
pub(super) enum Done {
    /// The file is in the page cache up to here.
    Warmed(io::Result<u64>),
    /// A step from file to file.
    Moved(Moved),
    /// What was in the pipe is in the file, all but what is left; how many bytes that are.
    Emptied(Pipe, u64, io::Result<()>),
}

/// A step from file to file.
#[derive(Debug)]
pub(super) struct Between {
    pub(super) from: (Arc<File>, u64),
    pub(super) to: (Arc<File>, u64),
    /// Most bytes to move, not zero.
    pub(super) len: u64,
    pub(super) facts: Facts,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Moved {
    /// Bytes by each way.
    pub(super) bytes: Vec<(Path, u64)>,
    pub(super) calls: u64,
    /// The source has no more.
    pub(super) ended: bool,
    /// Ways that were refused.
    pub(super) refused: Vec<Path>,
    /// Why the source or the target failed.
    pub(super) result: io::Result<()>,
}

/// Whether an error says that this way cannot be taken, where another may.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM, Errno::XDEV, Errno::BADF];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

/// Brings a range of a file into the page cache.
pub(super) fn warm(file: &File, at: u64, len: u64) -> Done {
    Done::Warmed(call::warm_blocking(file.as_fd(), at, len).map(|()| at + len))
}

/// Moves what is in the pipe to a position in a file. The page cache takes it, or waits for the disk to make room.
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
    /// Moves up to `len` bytes, by the next way where one is refused.
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
                Err(e) if way != Path::Pump && is_refusal(&e) => {
                    moved.refused.push(way);
                    self.facts.without = self.facts.without.with(way);
                }
                Err(e) => moved.result = Err(e),
            }
        }
        Done::Moved(moved)
    }

    fn step(&self, way: Path, moved: &mut Moved) -> io::Result<u64> {
        let ((from, at), (to, to_at)) = ((self.from.0.as_fd(), self.from.1), (self.to.0.as_fd(), self.to.1));
        moved.calls += 1;
        match way {
            Path::Clone => {
                file::clone_all(from, to, to_at)?;
                moved.ended = true;
                Ok(call::status(to)?.stx_size)
            }
            Path::CopyFileRange => match file::copy_range((from, at), (to, to_at), self.len as usize)? {
                // The end, or a file whose bytes are made when they are read: only reading can tell.
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
            match call::write_blocking(self.to.0.as_fd(), rest, self.to.1 + written as u64)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => written += n,
            }
        }
        Ok(n as u64)
    }
}
