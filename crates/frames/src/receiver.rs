//! Frames from another process, as a body.

use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, SizeHint};

use super::credit::Credit;
use super::error::SharedError;
use super::frame::Frame;
use super::ledger::{Holding, Ledger};
use super::link::{FrameLink, Received};
use super::message::Message;
use super::{memfd, rights};
use millstream::internal::Silence;
use millstream::net::UnixStream;
use std::os::fd::{AsFd, OwnedFd};

/// Frames that another process sends, as a body.
///
/// A frame of 32 KiB or more is a slice of mapped memory of the other process. The kernel prevents changes of this
/// memory: a plain socket of this crate sends it by `sendfile`, without reading it, and TLS encrypts it from there.
/// Shorter frames are copied.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use http::Response;
/// use millstream::net::UnixListener;
/// use millstream_frames::FrameReceiver;
///
/// let producers = UnixListener::bind("producers.sock").await?;
/// // One connection, and so one stream of frames, for each response.
/// let (stream, _) = producers.accept().await?;
/// let response = Response::new(FrameReceiver::builder().frames(8).handshake(stream).await?);
/// # Ok(())
/// # }
/// ```
///
/// # Credit
///
/// The other process may send as many frames as there is credit for. The credit is a number of
/// [frames](FrameReceiverBuilder::frames) and of [bytes](FrameReceiverBuilder::bytes) whose slices are not dropped yet.
/// Dropping the last slice of a frame returns its credit, at once and on any thread. A client that reads slowly
/// therefore stops the other process.
///
/// # Errors
///
/// The body fails, and the connection is closed, if the other process breaks the protocol, ends the connection without
/// an end of the frames, or is silent for too long while no frame is held. Frames that were received before stay valid.
///
/// # Cancel safety
///
/// Dropping the receiver closes the connection. Slices that were taken from it stay valid. The other process gets the
/// number of frames that were taken. It needs this because hyper drops the body of a response with a `Content-Length`
/// once it has all bytes, without waiting for its end.
pub struct FrameReceiver {
    /// `None` after the end, or a failure.
    link: Option<FrameLink>,
    ledger: Arc<Ledger>,
    silence: Silence,
    frame: Option<Frame>,
    /// Frames that were given out.
    taken: Credit,
    state: ReceiverState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiverState {
    /// The peer has not introduced itself.
    New,
    Open,
    /// The peer has sent the end, which was not confirmed.
    Ending,
    Ended,
}

/// Options of a [`FrameReceiver`].
#[derive(Clone, Debug)]
#[must_use]
pub struct FrameReceiverBuilder {
    credit: Credit,
    silence: Duration,
}

impl FrameReceiverBuilder {
    /// Sets the maximum number of frames that are held at a time; 16 by default, at least 1. Each is an open
    /// descriptor.
    pub fn frames(mut self, most: u32) -> Self {
        self.credit.frames = most.max(1);
        self
    }

    /// Sets the maximum number of bytes in the frames that are held at a time, and so of each frame; 16 MiB by default.
    pub fn bytes(mut self, most: u64) -> Self {
        self.credit.bytes = most.max(1);
        self
    }

    /// Sets the time that the other process may be silent while no frame is held; one minute by default.
    /// `Duration::MAX` turns the limit off.
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// Grants the credit, and waits for the greeting of the other process. The stream must be unused.
    ///
    /// # Errors
    ///
    /// As for the [receiver](FrameReceiver#errors). Fails with `ErrorKind::Unsupported` if bytes of the stream were
    /// received already, and in the portable build.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    pub async fn handshake(self, stream: UnixStream) -> Result<FrameReceiver, SharedError> {
        let link = FrameLink::new(&stream)?;
        drop(stream);
        let hello = Message::Hello(self.credit);
        poll_fn(|cx| link.poll_send(cx, hello, None)).await.map_err(SharedError::io("greet the other process"))?;
        let mut receiver = FrameReceiver {
            ledger: Ledger::new(self.credit, link.socket()),
            link: Some(link),
            silence: Silence::new(self.silence),
            frame: None,
            taken: Credit::default(),
            state: ReceiverState::New,
        };
        poll_fn(|cx| receiver.poll_hello(cx)).await?;
        Ok(receiver)
    }
}

impl FrameReceiver {
    /// Returns a builder with default options.
    pub fn builder() -> FrameReceiverBuilder {
        FrameReceiverBuilder { credit: Credit { frames: 16, bytes: 16 << 20 }, silence: Duration::from_secs(60) }
    }

    /// Begins to receive with default options; see [`FrameReceiverBuilder::handshake`], also for errors and panics.
    pub async fn handshake(stream: UnixStream) -> Result<Self, SharedError> {
        Self::builder().handshake(stream).await
    }

    /// Returns the next piece of the frames: a frame, or a part of a long one. `None` is the end, and follows an error.
    ///
    /// # Errors
    ///
    /// As for [the receiver](Self#errors).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Bytes, SharedError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_hello(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SharedError>> {
        let hello = self.poll_message(cx);
        match ready!(self.or_silent(cx, hello))? {
            (Message::Hello(Credit { frames: 0, .. }), _) => {
                self.state = ReceiverState::Open;
                Poll::Ready(Ok(()))
            }
            (Message::Hello(_), _) => Poll::Ready(Err(SharedError::violation("it wants to receive frames too"))),
            _ => Poll::Ready(Err(SharedError::violation("the first message is no greeting"))),
        }
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, SharedError>> {
        let Some(link) = &mut self.link else { return Poll::Ready(Err(SharedError::ended())) };
        let message = ready!(link.poll_message(cx))?.ok_or_else(SharedError::ended);
        self.silence.end();
        Poll::Ready(message)
    }

    /// Limits the time in which nothing arrives.
    fn or_silent<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<Result<T, SharedError>>,
    ) -> Poll<Result<T, SharedError>> {
        if polled.is_ready() {
            return polled;
        }
        loop {
            ready!(self.silence.poll(cx));
            // The other process may wait for credit, or may have done so until the last frame was dropped.
            match self.ledger.holding() {
                Holding::Frames => self.silence.end(),
                Holding::None(Some(released)) if self.silence.begin_after(released) => {}
                Holding::None(_) => return Poll::Ready(Err(SharedError::silent())),
            }
        }
    }

    /// Returns the credit that could not be returned when its frame was dropped.
    fn poll_credit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SharedError>> {
        let Some(link) = &self.link else { return Poll::Ready(Ok(())) };
        if !self.ledger.is_behind(cx.waker()) {
            return Poll::Ready(Ok(()));
        }
        let given = ready!(link.poll_with_room(cx, |_| self.ledger.give_back()));
        Poll::Ready(given.map_err(SharedError::io("return credit")))
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, SharedError>> {
        loop {
            if let Some(mut frame) = self.frame.take() {
                let bytes = frame.next().map_err(SharedError::io("read a frame"))?;
                if frame.is_empty() {
                    // The frame is not kept here: its slices hold it.
                    self.taken.count(frame.len());
                } else {
                    self.frame = Some(frame);
                }
                return Poll::Ready(Ok(Some(bytes)));
            }
            if self.state == ReceiverState::Ending
                && let Some(link) = &self.link
            {
                // An error is ignored: a peer that does not wait for the confirmation has ended in order too.
                let _ = ready!(link.poll_send(cx, Message::Done(self.taken), None));
                self.state = ReceiverState::Ended;
            }
            if self.state == ReceiverState::Ended {
                return Poll::Ready(Ok(None));
            }
            if let Poll::Ready(given) = self.poll_credit(cx) {
                given?;
            }
            let message = self.poll_message(cx);
            match ready!(self.or_silent(cx, message))? {
                (Message::Frame(len), Some(fd)) => self.frame = Some(self.accept(len, fd)?),
                (Message::Done(sent), _) if sent == self.taken => self.state = ReceiverState::Ending,
                (Message::Done(_), _) => return Poll::Ready(Err(SharedError::violation("an end with wrong numbers"))),
                _ => return Poll::Ready(Err(SharedError::violation("a message that only a receiver sends"))),
            }
        }
    }

    /// Checks a frame. Its descriptor is closed if it is refused.
    fn accept(&self, len: u64, fd: OwnedFd) -> Result<Frame, SharedError> {
        let held = self.ledger.hold(len).ok_or(SharedError::violation("a frame without credit"))?;
        if memfd::sealed_len(fd.as_fd()).map_err(SharedError::violation)? != len {
            return Err(SharedError::violation("a frame has another length than its memfd"));
        }
        Ok(Frame::new(File::from(fd), len, held))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, SharedError>>> {
        let step = match self.link {
            Some(_) => ready!(self.poll_step(cx)),
            None => Ok(None),
        };
        if !matches!(step, Ok(Some(_))) {
            self.link = None;
            self.frame = None;
        }
        Poll::Ready(step.transpose())
    }
}

impl Drop for FrameReceiver {
    fn drop(&mut self) {
        if let Some(link) = self.link.as_ref().filter(|_| self.state == ReceiverState::Open) {
            // If there is no room for the message, the end of the connection must suffice.
            let _ = rights::send(link.socket().as_fd(), &Message::Done(self.taken).encode(), None);
        }
    }
}

impl Body for FrameReceiver {
    type Data = Bytes;
    type Error = SharedError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, SharedError>>> {
        self.poll_next(cx).map(|next| next.map(|bytes| bytes.map(http_body::Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.link.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.link.is_none() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl fmt::Debug for FrameReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReceiver")
            .field("state", &self.state)
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}
