//! Sending on one socket: splits bytes into system calls, and interprets their results.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

use crate::buf::origin::{OriginSlice, OriginSlices};
use crate::buf::queue::{Front, Queue};
use crate::net::stats::{Meter, Way};
use crate::sys::call;
use crate::sys::call::IOV_LIMIT;
use crate::sys::errno::Errno;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::watch;
use crate::sys::watch::Watched;

const SENDFILE_MAX: usize = 2 << 20;

#[derive(Debug)]
pub(super) struct SocketWriter {
    socket: Watched,
    pub(in crate::net) writable: Waker,
    /// Whether the runtime's driver is not used, because it has ended or no task may wait for it.
    unwatched: AtomicBool,
    /// Counters. The sender holds the lock of the egress.
    pub(in crate::net) meter: Meter,
}

/// Permanent failure of sending, which later calls return again.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) enum SendFailure {
    Errno(Errno),
    /// The file behind a response became shorter than its announced length.
    Torn,
}

impl From<SendFailure> for io::Error {
    fn from(failure: SendFailure) -> Self {
        match failure {
            SendFailure::Errno(errno) => errno.into(),
            SendFailure::Torn => Self::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was being sent"),
        }
    }
}

impl From<io::Error> for SendFailure {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            // The file no longer backs the mapping of a slice.
            Some(Errno::FAULT) => Self::Torn,
            errno => Self::Errno(errno.unwrap_or(Errno::IO)),
        }
    }
}

impl AsFd for SocketWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl SocketWriter {
    /// Registers the socket with the driver of `runtime`. Panics if the runtime was built without I/O.
    #[track_caller]
    pub(in crate::net) fn new(socket: OwnedFd, runtime: &Handle, writable: Waker) -> io::Result<Self> {
        let _context = runtime.enter();
        let socket = watch::watch(socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { socket, writable, unwatched: AtomicBool::new(false), meter: Meter::new() })
    }

    #[inline]
    pub(super) fn watched(&self) -> &Watched {
        &self.socket
    }

    /// Returns whether a full socket is not watched: no waker is called when it has room.
    pub(super) fn is_unwatched(&self) -> bool {
        self.unwatched.load(Ordering::Relaxed)
    }

    pub(super) fn set_unwatched(&self, on: bool) {
        self.unwatched.store(on, Ordering::Relaxed);
    }

    /// Sends `queue` until the socket is full; pieces of files by `sendfile` if `files`. `None` means that the socket
    /// is full and that the waker is armed, unless [`is_unwatched`](Self::is_unwatched).
    pub(super) fn send_queue(&self, queue: &mut Queue, files: bool) -> Result<Option<()>, SendFailure> {
        while !queue.is_empty() {
            let mut iov = [IoSlice::new(&[]); IOV_LIMIT];
            let sent = match queue.front(&mut iov, files) {
                Front::Memory { slices, more } => {
                    self.send_memory(&iov[..slices], more, || queue.is_torn(IOV_LIMIT, files))?
                }
                Front::File { file, offset, len } => self.send_file(file, offset, len)?,
            };
            match sent {
                Some(n) => queue.advance(n),
                None => return Ok(None),
            }
        }
        Ok(Some(()))
    }

    /// Sends `queue` and then `slices`, until the socket is full or one call's worth of `slices` is sent. Returns the
    /// number of bytes of `slices` that were sent. `None` means that none were sent, that the socket is full, and that
    /// the waker is armed. Pieces of files are sent by `sendfile` if `files`.
    pub(super) fn send_through(
        &self,
        queue: &mut Queue,
        slices: OriginSlices<'_>,
        files: bool,
    ) -> Result<Option<usize>, SendFailure> {
        let has_file = || files && slices.iter().any(OriginSlice::is_sent_from_file);
        let io_slices = slices.io_slices();
        if queue.is_empty() && io_slices.len() <= IOV_LIMIT && !has_file() {
            // A response from memory, the common case: the caller's slices are sent unchanged.
            return self.send_memory(io_slices, false, || slices.iter().any(OriginSlice::is_torn));
        }
        loop {
            if !queue.fits_one_call(IOV_LIMIT) && self.send_queue(queue, files)?.is_none() {
                return Ok(None);
            }
            let Some(sent) = self.send_both(queue, slices, files)? else { return Ok(None) };
            let queued = queue.len();
            queue.advance(sent.min(queued));
            if sent > queued {
                return Ok(Some(sent - queued));
            }
        }
    }

    /// Sends all of `queue`, which fits one call, and the memory at the front of `slices` in one call, and a following
    /// piece of a file in another. Returns the number of bytes sent.
    fn send_both(&self, queue: &Queue, slices: OriginSlices<'_>, files: bool) -> Result<Option<usize>, SendFailure> {
        let mut iov = [IoSlice::new(&[]); IOV_LIMIT];
        let from_queue = queue.pieces().zip(&mut iov).map(|(piece, slot)| *slot = IoSlice::new(piece)).count();
        let (mut used, mut offered) = (from_queue, queue.len());
        let mut file = None;
        let filled = || slices.iter().filter(|slice| !slice.bytes().is_empty());
        let mut rest = filled();
        while let Some(slice) = rest.next() {
            if files && slice.is_sent_from_file() {
                // Following slices of the same file are sent by the same call.
                let (mut last, mut len) = (slice, slice.bytes().len());
                while let Some(next) = rest.next().filter(|next| next.follows(last.bytes())) {
                    (last, len) = (next, len + next.bytes().len());
                }
                file = slice.file().map(|(fd, offset)| (fd, offset, len));
                break;
            }
            if used == IOV_LIMIT {
                break;
            }
            iov[used] = IoSlice::new(slice.bytes());
            used += 1;
            offered += slice.bytes().len();
        }
        let mut sent = 0;
        if used > 0 {
            // The last segment of a head stays open for the following file.
            let more = file.is_some();
            let is_torn =
                || queue.is_torn(IOV_LIMIT, files) || filled().take(used - from_queue).any(OriginSlice::is_torn);
            match self.send_memory(&iov[..used], more, is_torn)? {
                Some(n) => sent = n,
                None => return Ok(None),
            }
            if sent < offered {
                self.meter.partial();
                return Ok(Some(sent));
            }
        }
        let Some((fd, offset, len)) = file else { return Ok(Some(sent)) };
        match self.send_file(fd, offset, len)? {
            Some(n) => Ok(Some(sent + n)),
            None => Ok(Some(sent).filter(|&n| n > 0)),
        }
    }

    fn send_memory(
        &self,
        slices: &[IoSlice<'_>],
        more: bool,
        is_torn: impl Fn() -> bool,
    ) -> Result<Option<usize>, SendFailure> {
        // The kernel refuses slices of a mapping without its file, but not the zeros that replaced them for another
        // reader. These may appear during the call, so the check is repeated afterwards.
        if is_torn() {
            return Err(SendFailure::Torn);
        }
        let sent = self.send(Way::Call, |fd| call::send(fd, slices, more))?;
        if sent.is_some() && is_torn() { Err(SendFailure::Torn) } else { Ok(sent) }
    }

    fn send_file(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Option<usize>, SendFailure> {
        let sent = self.send(Way::Sendfile, |fd| call::send_file(fd, file, offset, len.min(SENDFILE_MAX)))?;
        if sent == Some(0) { Err(SendFailure::Torn) } else { Ok(sent) }
    }

    /// Runs `send`, which uses `way`. Returns `None` if the socket has no room; the waker is armed then, unless
    /// [`is_unwatched`](Self::is_unwatched).
    pub(in crate::net) fn send(
        &self,
        way: Way,
        mut send: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Result<Option<usize>, SendFailure> {
        // Without the readiness that the runtime's driver knows: looking it up costs more than it saves, as most sockets
        // have room, and no task may drive the driver.
        let mut sent = send(self.as_fd());
        loop {
            match sent {
                Ok(n) => {
                    self.meter.sent(n, way);
                    return Ok(Some(n));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.meter.would_block();
                    if self.is_unwatched() {
                        return Ok(None);
                    }
                    // Without the task's budget: a forced yield would call our waker during this call.
                    let mut ready = pin!(unconstrained(poll_fn(|cx| self.socket.poll_write_ready(cx).map_ok(drop))));
                    match ready.as_mut().poll(&mut Context::from_waker(&self.writable)) {
                        // If there is no room, this clears the readiness.
                        Poll::Ready(Ok(_)) => sent = self.socket.try_io(Interest::WRITABLE, |fd| send(fd.as_fd())),
                        // The runtime has ended, but the connection still lives and may yet be closed normally.
                        Poll::Ready(Err(_)) => {
                            self.set_unwatched(true);
                            return Ok(None);
                        }
                        Poll::Pending => return Ok(None),
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}
