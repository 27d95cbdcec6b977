//! What the kernel can be asked for, each request with everything it touches.
//!
//! ```text
//!  open      open and close
//!  rw        read and write, one piece of memory
//!  vectored  the same with many pieces
//!  sync      sync and allocate
//!  stat      what a file is
//!  path      rename, unlink, link
//!  transfer  splice and send
//! ```
//!
//! An operation knows two ways to the same end: the entry for a ring, and the plain system calls. Both report the number
//! the call returns, and [`Operation::advance`] makes of it what the caller gets.
//!
//! Invariants:
//! 1. An entry points only into the operation, which is boxed, or into memory that the operation owns.
//! 2. From [`entry`](Operation::entry) until the final completion nobody moves, touches or drops the operation: the slot
//!    table holds it, whatever happens to the future.
//! 3. What a success brings (a descriptor) belongs to the operation as soon as `advance` has seen it.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue::{Entry, Flags};
use io_uring::types;
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::buffers;
use super::program::Outcome;

pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod rw;
pub(crate) mod stat;
pub(crate) mod sync;
pub(crate) mod transfer;
pub(crate) mod vectored;

/// One request to the kernel.
pub(crate) trait Operation: Any + fmt::Debug + Send {
    /// The entry for a ring, for what is still to be done.
    fn entry(&mut self, files: &Files) -> Entry;

    /// The same by plain system calls, **which may wait**, for at most `limit` bytes where bytes are moved.
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32>;

    /// The descriptors that may not be ready, and what for. Files are always ready.
    fn waits(&self) -> Waits<'_> {
        [None, None]
    }

    /// Whether the kernel keeps what is linked behind it from running if it fails or is short.
    ///
    /// For many operations it does not: they report their error and forget to fail the link. So it is on Linux 6.18 with
    /// fsync, fallocate, statx, rename, unlink and link, whatever io_uring_enter(2) says, and their sources have read so
    /// since 5.19. Behind those a submission ends.
    fn stops_links(&self) -> bool {
        false
    }

    /// What it does to the files of the program.
    fn file(&self) -> FileUse {
        FileUse::None
    }

    /// The code of the entry, which needs no places for files.
    fn code(&self) -> u8;

    /// Takes the number that a success returned.
    fn advance(&mut self, result: u32) -> Progress {
        let _ = result;
        Progress::Done
    }

    /// What an error means that for this operation is final, whatever it means for others. `None`: what it usually means.
    fn fail(&mut self, errno: i32) -> Option<Outcome> {
        let _ = errno;
        None
    }

    /// Bytes moved so far.
    fn bytes(&self) -> u64 {
        0
    }
}

/// What an operation may have to wait for: up to two descriptors that are no files.
pub(crate) type Waits<'a> = [Option<(&'a Target, PollFlags)>; 2];

/// What an operation does to the files of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// Nothing, or only works on them.
    None,
    /// Opens the `n`th.
    Opens(usize),
    /// Closes the `n`th.
    Closes(usize),
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All was done.
    Done,
    /// A part was done; the rest can be asked for.
    More,
    /// A part was done, and there is no more: the end of a file.
    End,
}

impl Progress {
    /// How far one has come that is to move `len` bytes, after a call that moved `n` of them.
    pub(super) fn of(done: usize, len: usize, n: u32) -> Self {
        match n {
            _ if done >= len => Self::Done,
            0 => Self::End,
            _ => Self::More,
        }
    }
}

/// The file an operation works on.
#[derive(Clone)]
pub(crate) enum Target {
    /// One that is open, and stays so for as long as the operation lives.
    Fd(Arc<dyn AsFd + Send + Sync>),
    /// The one that the `n`th open of the same program opens.
    Opened(usize),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fd(fd) => f.debug_tuple("Fd").field(&fd.as_fd().as_raw_fd()).finish(),
            Self::Opened(n) => f.debug_tuple("Opened").field(n).finish(),
        }
    }
}

impl<T: AsFd + Send + Sync + 'static> From<Arc<T>> for Target {
    fn from(file: Arc<T>) -> Self {
        Self::Fd(file)
    }
}

impl Target {
    /// The descriptor as entries name it, and the flag that says how.
    pub(super) fn in_ring(&self, files: &Files) -> (types::Fd, Flags) {
        match self {
            Self::Fd(fd) => (types::Fd(fd.as_fd().as_raw_fd()), Flags::empty()),
            Self::Opened(n) => (types::Fd(files.slot(*n).cast_signed()), Flags::FIXED_FILE),
        }
    }

    /// The descriptor for plain calls.
    pub(super) fn as_fd<'a>(&'a self, files: &'a Files) -> io::Result<BorrowedFd<'a>> {
        match self {
            Self::Fd(fd) => Ok(fd.as_ref().as_fd()),
            Self::Opened(n) => files.fd(*n),
        }
    }
}

/// The files that the steps of one program open: places in the table of a ring, or descriptors. And whether the ring
/// knows the registered buffers.
#[derive(Debug, Default)]
pub(crate) struct Files {
    slots: Vec<u32>,
    fds: Vec<Option<OwnedFd>>,
    registered: bool,
}

impl Files {
    /// Gives the program the places of a ring's table that its opens will fill.
    pub(super) fn assign(&mut self, slots: Vec<u32>) {
        self.slots = slots;
    }

    /// Says whether pool memory may be named by index.
    pub(super) fn set_registered(&mut self, registered: bool) {
        self.registered = registered;
    }

    /// The index under which the ring knows the memory that starts there.
    pub(super) fn buffer(&self, start: *const u8) -> Option<u16> {
        self.registered.then(|| buffers::index_of(start)).flatten()
    }

    /// The places that were assigned.
    pub(super) fn assigned(&self) -> &[u32] {
        &self.slots
    }

    /// Takes the places back.
    pub(super) fn take_assigned(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.slots)
    }

    /// The place of the `n`th open.
    pub(super) fn slot(&self, n: usize) -> u32 {
        self.slots[n]
    }

    /// Keeps the descriptor of the `n`th open.
    pub(super) fn keep(&mut self, n: usize, fd: OwnedFd) {
        self.fds.resize_with(self.fds.len().max(n + 1), || None);
        self.fds[n] = Some(fd);
    }

    /// Takes the descriptor of the `n`th open, to close it.
    pub(super) fn take(&mut self, n: usize) -> Option<OwnedFd> {
        self.fds.get_mut(n).and_then(Option::take)
    }

    /// Closes the descriptors that are left.
    pub(super) fn close_all(&mut self) {
        self.fds.clear();
    }

    fn fd(&self, n: usize) -> io::Result<BorrowedFd<'_>> {
        Ok(self.fds.get(n).and_then(Option::as_ref).ok_or(Errno::BADF)?.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::uring::{Setup, Uring};
    use crate::ring::driver::Driver;
    use crate::ring::op::rw::{Read, Write};
    use crate::ring::op::stat::Stat;
    use crate::ring::op::sync::{Allocate, Sync};
    use crate::ring::op::vectored::{ReadVectored, WriteVectored};
    use crate::ring::program::Program;
    use crate::ring::slots::Ended;
    use bytes::Bytes;
    use rustix::fs::FallocateFlags;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Runs one operation by a ring of its own, which may know the pool's memory; by plain calls where there is none.
    fn by_ring<T: Operation>(op: T, registered: bool) -> (T, io::Result<u64>) {
        let mut program = Program::of(op);
        let Ok(mut uring) = Uring::new(Setup::default()) else {
            program.run_blocking();
            return program.into_single();
        };
        let registered = registered && buffers::register(&mut uring).is_ok();
        let driver = Arc::new(Driver::new(Box::new(uring), 0, registered, Box::new(|| {})));
        let mut running = pin!(driver.submit(Box::new(program)).unwrap());
        loop {
            driver.turn();
            match running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ended::Finished(program)) => return program.into_single(),
                Poll::Ready(other) => panic!("{other:?}"),
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    /// Runs one operation by plain calls of at most `limit` bytes.
    fn by_calls<T: Operation>(mut op: T, limit: usize) -> (T, io::Result<u64>) {
        let mut files = Files::default();
        loop {
            match op.perform(&mut files, limit).map(|n| op.advance(n)) {
                Ok(Progress::More) => {}
                Ok(Progress::Done | Progress::End) => {
                    let bytes = op.bytes();
                    return (op, Ok(bytes));
                }
                Err(e) => return (op, Err(e)),
            }
        }
    }

    fn file() -> (Arc<std::fs::File>, Target) {
        let file = Arc::new(tempfile::tempfile().unwrap());
        (Arc::clone(&file), file.into())
    }

    /// Pieces of 0, 1, 2, ... bytes, more of them than one call takes.
    fn pieces() -> Vec<Bytes> {
        (0..1500usize).map(|n| Bytes::from(vec![n as u8; n % 7])).collect()
    }

    #[test]
    fn many_pieces_are_written_and_read_whatever_one_call_takes() {
        let pieces = pieces();
        let whole: Vec<u8> = pieces.concat();
        let lens: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        for limit in [None, Some(1), Some(5), Some(1000), Some(usize::MAX)] {
            let (std, target) = file();
            let write = WriteVectored::new(target.clone(), 3, pieces.clone());
            let read = ReadVectored::new(target, 3, &lens);
            let (written, (read, got)) = match limit {
                None => (by_ring(write, false).1, by_ring(read, false)),
                Some(limit) => (by_calls(write, limit).1, by_calls(read, limit)),
            };
            assert_eq!(written.unwrap(), whole.len() as u64, "{limit:?}");
            let mut bytes = vec![0; whole.len() + 3];
            std::os::unix::fs::FileExt::read_exact_at(&*std, &mut bytes, 0).unwrap();
            assert!(bytes[3..] == whole, "{limit:?}");
            assert_eq!(got.unwrap(), whole.len() as u64, "{limit:?}");
            assert!(read.into_pieces() == pieces, "{limit:?}");
        }
    }

    #[test]
    fn pieces_behind_the_end_of_the_file_are_empty() {
        let (std, target) = file();
        std::os::unix::fs::FileExt::write_all_at(&*std, &[7; 100], 0).unwrap();
        for limit in [None, Some(9)] {
            let read = ReadVectored::new(target.clone(), 10, &[50, 0, 50, 50]);
            let (read, got) = match limit {
                None => by_ring(read, false),
                Some(limit) => by_calls(read, limit),
            };
            assert_eq!(got.unwrap(), 90);
            let lens: Vec<usize> = read.into_pieces().iter().map(Bytes::len).collect();
            assert_eq!(lens, [50, 0, 40, 0]);
        }
    }

    #[test]
    fn memory_the_ring_knows_is_named_by_index() {
        let (_, target) = file();
        let mut lease = crate::buf::pool::lease(256 << 10);
        let bytes: Vec<u8> = (0..200_000usize).map(|n| (n % 251) as u8).collect();
        lease.extend_from_slice(&bytes);
        let lease = lease.freeze();
        let files = Files { registered: true, ..Files::default() };
        assert!(files.buffer(lease.as_ptr()).is_some());
        assert!(files.buffer(bytes.as_ptr()).is_none(), "not ours");
        assert!(Files::default().buffer(lease.as_ptr()).is_none(), "not registered");
        let write = Write::new(target.clone(), 1, lease.slice(1000..));
        assert_eq!(by_ring(write, true).1.unwrap(), 199_000);
        let (read, got) = by_ring(Read::new(target, 1, 199_000), true);
        assert_eq!(got.unwrap(), 199_000);
        assert!(read.into_bytes()[..] == bytes[1000..]);
    }

    #[test]
    fn room_is_made_and_seen_both_ways() {
        let (std, target) = file();
        let look = |by_the_ring: bool| {
            let stat = Stat::new(target.clone());
            let (stat, result) = if by_the_ring { by_ring(stat, false) } else { by_calls(stat, 0) };
            result.map(|_| *stat.found().expect("it is done"))
        };
        for (n, by_the_ring) in [(1, false), (2, true)] {
            let make = Allocate::new(target.clone(), FallocateFlags::empty(), 0, n * 8192);
            let sync = Sync::new(target.clone(), by_the_ring);
            let made = if by_the_ring { by_ring(make, false).1 } else { by_calls(make, 0).1 };
            let synced = if by_the_ring { by_ring(sync, false).1 } else { by_calls(sync, 0).1 };
            (made.unwrap(), synced.unwrap());
            assert_eq!(std.metadata().unwrap().len(), n * 8192);
            let (one, other) = (look(true).unwrap(), look(false).unwrap());
            assert_eq!(one.stx_size, n * 8192);
            assert_eq!((one.stx_ino, one.stx_mtime.tv_nsec), (other.stx_ino, other.stx_mtime.tv_nsec));
        }
    }
}
