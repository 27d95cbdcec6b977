//! Moving bytes between descriptors: splice, and sending to a socket.

use std::io::{self, IoSlice};

use bytes::Bytes;

use super::rw::piece;
use super::{Files, Operation, Progress, Target, Waits};
use crate::sys::flags::PollFlags;
use crate::sys::{call, transfer};

#[cfg(uring)]
mod submit;

/// One side of a [`Splice`]: a descriptor and its offset, or no offset for the file position, pipes and sockets.
pub(crate) type Side = (Target, Option<u64>);

/// Moves `len` bytes from one descriptor to another, one of them a pipe; fewer only at the end of the source.
///
/// On a ring a kernel thread does the work, and it must not wait for a pipe: there are few threads, and a time limit
/// does not begin until the thread returns (Linux 6.15 and later). So the splice does not wait, and the pipe is polled.
#[derive(Debug)]
pub(crate) struct Splice {
    from: Side,
    to: Side,
    len: usize,
    done: usize,
}

impl Splice {
    pub(crate) fn new(from: Side, to: Side, len: usize) -> Self {
        Self { from, to, len, done: 0 }
    }

    fn at(&self, side: &Side) -> Option<u64> {
        side.1.map(|offset| offset + self.done as u64)
    }
}

impl Operation for Splice {
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let len = piece(self.len, self.done, limit);
        let from = (self.from.0.as_fd(files)?, self.at(&self.from));
        let to = (self.to.0.as_fd(files)?, self.at(&self.to));
        Ok(transfer::splice(from, to, len)? as u32)
    }

    fn waits(&self) -> Waits<'_> {
        [Some((&self.from.0, PollFlags::IN)), Some((&self.to.0, PollFlags::OUT))]
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.done += n as usize;
        Progress::of(self.done, self.len, n)
    }

    fn bytes(&self) -> u64 {
        self.done as u64
    }
}

/// Sends all of `bytes` to a stream socket.
///
/// With `MSG_WAITALL` the kernel resumes a partial send, and linked entries run only if all was sent; after a plain
/// partial send they would run. If the peer resets, the result is the number of bytes so far; the next attempt fails.
#[derive(Debug)]
pub(crate) struct Send {
    socket: Target,
    bytes: Bytes,
    done: usize,
}

impl Send {
    pub(crate) fn new(socket: Target, bytes: Bytes) -> Self {
        Self { socket, bytes, done: 0 }
    }
}

impl Operation for Send {
    fn perform(&mut self, files: &mut Files, limit: usize) -> io::Result<u32> {
        let rest = &self.bytes[self.done..][..piece(self.bytes.len(), self.done, limit)];
        Ok(call::send(self.socket.as_fd(files)?, &[IoSlice::new(rest)], false)? as u32)
    }

    fn waits(&self) -> Waits<'_> {
        [Some((&self.socket, PollFlags::OUT)), None]
    }

    fn advance(&mut self, n: u32) -> Progress {
        self.done += n as usize;
        Progress::of(self.done, self.bytes.len(), n)
    }

    fn bytes(&self) -> u64 {
        self.done as u64
    }
}
