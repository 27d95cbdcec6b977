//! The socket to the other process: messages, with a descriptor for each frame.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;

use super::error::SharedError;
use super::message::{LEN, Message};
use super::rights;
use millstream::internal::has_unread_bytes;
use millstream::net::UnixStream;

/// Bytes that one call receives.
const INBOX: usize = 32 * LEN;

/// A message, and the descriptor of a frame.
pub(crate) type Received = (Message, Option<OwnedFd>);

#[derive(Debug)]
pub(crate) struct FrameLink {
    io: Arc<tokio::net::UnixStream>,
    /// Received bytes, of which those in `from..to` were not parsed.
    inbox: [u8; INBOX],
    from: usize,
    to: usize,
    /// Descriptors of frames whose messages were not parsed. At most one for each, so they are few.
    rights: VecDeque<OwnedFd>,
}

impl FrameLink {
    /// Panics outside a tokio runtime with I/O enabled.
    #[track_caller]
    pub(crate) fn new(stream: &UnixStream) -> Result<Self, SharedError> {
        let failed = SharedError::io("use the connection");
        if has_unread_bytes(stream) {
            let error = io::Error::new(io::ErrorKind::Unsupported, "bytes of it were received already");
            return Err(failed(error));
        }
        let socket = stream.as_fd().try_clone_to_owned().map_err(&failed)?;
        let io = Arc::new(tokio::net::UnixStream::from_std(socket.into()).map_err(&failed)?);
        Ok(Self { io, inbox: [0; INBOX], from: 0, to: 0, rights: VecDeque::new() })
    }

    pub(crate) fn socket(&self) -> &Arc<tokio::net::UnixStream> {
        &self.io
    }

    /// Returns the next message. `None` is the end of the connection.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Received>, SharedError>> {
        loop {
            if let Some((bytes, _)) = self.inbox[self.from..self.to].split_first_chunk() {
                let message = Message::parse(bytes).map_err(SharedError::violation)?;
                self.from += LEN;
                return Poll::Ready(self.with_right(message).map(Some).map_err(SharedError::violation));
            }
            self.inbox.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            match ready!(self.poll_receive(cx)) {
                Ok(0) if self.to > 0 => {
                    return Poll::Ready(Err(SharedError::violation("the connection ended inside a message")));
                }
                Ok(0) => return Poll::Ready(Ok(None)),
                Ok(n) => self.to += n,
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    return Poll::Ready(Err(SharedError::violation("too many descriptors")));
                }
                Err(e) => return Poll::Ready(Err(SharedError::io("receive from the other process")(e))),
            }
            // Each belongs to a message that has begun: a sender that sends more makes this process keep them.
            if self.rights.len() > self.to.div_ceil(LEN) {
                return Poll::Ready(Err(SharedError::violation("descriptors without frames")));
            }
        }
    }

    fn with_right(&mut self, message: Message) -> Result<Received, &'static str> {
        let right = match message {
            Message::Frame(_) => Some(self.rights.pop_front().ok_or("a frame without a descriptor")?),
            _ => None,
        };
        // Descriptors of later frames may already have arrived, if their messages have.
        if self.rights.len() > (self.to - self.from).div_ceil(LEN) {
            return Err("a descriptor without a frame");
        }
        Ok((message, right))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_read_ready(cx))?;
            let (socket, inbox, rights) = (&self.io, &mut self.inbox[self.to..], &mut self.rights);
            match socket.try_io(Interest::READABLE, || rights::receive(socket.as_fd(), inbox, rights)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// Runs `send` when the socket has room, and repeats it while it fails with `WouldBlock`.
    pub(crate) fn poll_with_room<R>(
        &self,
        cx: &mut Context<'_>,
        mut send: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        loop {
            ready!(self.io.poll_write_ready(cx))?;
            match self.io.try_io(Interest::WRITABLE, || send(self.io.as_fd())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Sends a message, with the descriptor of a frame.
    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        message: Message,
        right: Option<BorrowedFd<'_>>,
    ) -> Poll<io::Result<()>> {
        let bytes = message.encode();
        match ready!(self.poll_with_room(cx, |socket| rights::send(socket, &bytes, right)))? {
            LEN => Poll::Ready(Ok(())),
            // The kernel accepts so few bytes completely or not at all.
            _ => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        }
    }
}

impl Drop for FrameLink {
    fn drop(&mut self) {
        // Other descriptors of the socket may be open, in handles of the stream.
        rights::shut_down(self.socket().as_fd());
    }
}
