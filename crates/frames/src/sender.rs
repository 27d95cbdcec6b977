//! Bytes for another process, as frames.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use http_body::Body;

use super::credit::Credit;
use super::error::SharedError;
use super::link::FrameLink;
use super::memfd;
use super::message::Message;
use millstream::internal::Silence;
use millstream::net::UnixStream;
use std::os::fd::{AsFd, OwnedFd};

/// Frames for another process.
///
/// The bytes of a frame are copied once, into memory that the other process maps or reads. It gets a descriptor of that
/// memory. No process can change the memory after that.
///
/// ```no_run
/// # async fn run(request: http::Request<millstream::server::RequestBody>) -> Result<(), Box<dyn std::error::Error>> {
/// use millstream::net::UnixStream;
/// use millstream_frames::FrameSender;
///
/// let mut sender = FrameSender::handshake(UnixStream::connect("uploads.sock").await?).await?;
/// let bytes = sender.send_body(request.into_body()).await?;
/// sender.finish().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Sending fails if the other process breaks the protocol, ends the connection, or returns no credit for too long while
/// there is none. The connection is closed when the sender is dropped; without [`finish`](Self::finish) the other
/// process regards this as a failure.
///
/// # Cancel safety
///
/// After the future of a method was dropped, some of the bytes may have been sent. Drop the sender then.
pub struct FrameSender {
    link: FrameLink,
    /// The credit that the other process has granted, within the limits of this side.
    granted: Credit,
    /// The unused part of it.
    credit: Credit,
    /// The frames in all.
    sent: Credit,
    /// Frames that were sent and may not be returned yet, never more than the used credit. They are kept so that this
    /// side closes the last descriptor of a frame, which frees its pages: the other side may be sending on a busy
    /// thread.
    kept: VecDeque<Filling>,
    kept_bytes: u64,
    frame_max: usize,
    /// The frame that is being filled.
    filling: Option<Filling>,
    silence: Silence,
}

struct Filling {
    file: OwnedFd,
    len: usize,
}

/// Options of a [`FrameSender`].
#[derive(Clone, Debug)]
#[must_use]
pub struct FrameSenderBuilder {
    frame: usize,
    limit: Credit,
    silence: Duration,
}

/// The next item of a body.
enum Next<T> {
    Item(T),
    /// Nothing for now, and there are bytes to send.
    Waits,
}

impl FrameSenderBuilder {
    /// Sets the maximum length of a frame in bytes; 1 MiB by default, and never more than the credit.
    pub fn frame(mut self, bytes: usize) -> Self {
        self.frame = bytes.max(1);
        self
    }

    /// Sets the maximum number of frames that are sent and not returned; 16 by default, at least 1. Each is an open
    /// descriptor of this process. Credit of the other process beyond it is not used.
    pub fn frames(mut self, most: u32) -> Self {
        self.limit.frames = most.max(1);
        self
    }

    /// Sets the maximum number of bytes in the frames that are sent and not returned, and so of each frame; 16 MiB by
    /// default. Credit of the other process beyond it is not used.
    pub fn bytes(mut self, most: u64) -> Self {
        self.limit.bytes = most.max(1);
        self
    }

    /// Sets the time that the other process may take to return credit when there is none, and to confirm the end when it
    /// has returned all frames; one minute by default.
    /// `Duration::MAX` turns the limit off.
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// Greets the other process, and waits for its credit. The stream must be unused.
    ///
    /// # Errors
    ///
    /// As for the [sender](FrameSender#errors). Fails with `ErrorKind::Unsupported` if bytes of the stream were
    /// received already, and in the portable build.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    pub async fn handshake(self, stream: UnixStream) -> Result<FrameSender, SharedError> {
        let link = FrameLink::new(&stream)?;
        drop(stream);
        let hello = Message::Hello(Credit::default());
        poll_fn(|cx| link.poll_send(cx, hello, None)).await.map_err(SharedError::io("greet the other process"))?;
        let mut sender = FrameSender {
            link,
            granted: Credit::default(),
            credit: Credit::default(),
            sent: Credit::default(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            frame_max: self.frame,
            filling: None,
            silence: Silence::new(self.silence),
        };
        match poll_fn(|cx| sender.poll_message(cx)).await? {
            Message::Hello(Credit { frames: frames @ 1.., bytes }) => {
                // The other process may grant more than this one can hold.
                let limit = self.limit;
                let credit = Credit { frames: frames.min(limit.frames), bytes: bytes.min(limit.bytes) };
                (sender.granted, sender.credit) = (credit, credit);
                sender.frame_max = usize::try_from(credit.bytes).map_or(self.frame, |bytes| bytes.min(self.frame));
                Ok(sender)
            }
            Message::Hello(_) => Err(SharedError::violation("it wants to send frames too")),
            _ => Err(SharedError::violation("the first message is no greeting")),
        }
    }
}

impl FrameSender {
    /// Returns a builder with default options.
    pub fn builder() -> FrameSenderBuilder {
        let limit = Credit { frames: 16, bytes: 16 << 20 };
        FrameSenderBuilder { frame: 1 << 20, limit, silence: Duration::from_secs(60) }
    }

    /// Begins to send with default options; see [`FrameSenderBuilder::handshake`], also for errors and panics.
    pub async fn handshake(stream: UnixStream) -> Result<Self, SharedError> {
        Self::builder().handshake(stream).await
    }

    /// Sends `bytes` as a frame, or as several if they are longer than [one](FrameSenderBuilder::frame). Waits for
    /// credit.
    ///
    /// # Errors
    ///
    /// As for [the sender](Self#errors), and those of memory that is exhausted.
    ///
    /// # Cancel safety
    ///
    /// See [the sender](Self#cancel-safety).
    pub async fn send(&mut self, mut bytes: impl Buf) -> Result<(), SharedError> {
        while bytes.has_remaining() {
            if self.fill(&mut bytes)? {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    /// Sends the data of a body, and returns the number of bytes. Data that the body gives without a pause is sent as
    /// one frame, up to its [maximum length](FrameSenderBuilder::frame). Trailers are dropped.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send), also while the body waits, and [`is_body`](SharedError::is_body) if it fails.
    ///
    /// # Cancel safety
    ///
    /// See [the sender](Self#cancel-safety).
    pub async fn send_body<B>(&mut self, body: B) -> Result<u64, SharedError>
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let mut body = pin!(body);
        let mut sent = 0;
        loop {
            let next = poll_fn(|cx| match body.as_mut().poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(Next::Item(frame))),
                Poll::Pending if self.filling.is_some() => Poll::Ready(Ok(Next::Waits)),
                Poll::Pending => self.poll_end(cx).map(Err),
            });
            match next.await? {
                Next::Item(Some(frame)) => {
                    let frame = frame.map_err(|error| SharedError::body(error.into()))?;
                    let Ok(mut data) = frame.into_data() else { continue };
                    sent += data.remaining() as u64;
                    while data.has_remaining() {
                        if self.fill(&mut data)? {
                            self.flush().await?;
                        }
                    }
                }
                Next::Item(None) => break,
                Next::Waits => self.flush().await?,
            }
        }
        self.flush().await?;
        Ok(sent)
    }

    /// Ends the frames, and waits until the other process has taken all of them. It may still use them. The time of
    /// [silence](FrameSenderBuilder::silence) begins when it has returned all of them. There is no limit before: a process
    /// that keeps a frame, or takes none, may do so for a slow client. Add a timeout if it may not.
    ///
    /// # Errors
    ///
    /// As for [the sender](Self#errors). Fails with [`is_ended`](SharedError::is_ended) if the other process has taken
    /// only a part of them.
    ///
    /// # Cancel safety
    ///
    /// The end of the frames may or may not have been sent.
    pub async fn finish(mut self) -> Result<(), SharedError> {
        let done = Message::Done(self.sent);
        let told = poll_fn(|cx| self.link.poll_send(cx, done, None)).await;
        match told.map_err(SharedError::io("end the frames")) {
            // The other process may have taken all frames before.
            Err(error) if !error.is_ended() => return Err(error),
            _ => {}
        }
        loop {
            match poll_fn(|cx| self.poll_taken(cx)).await? {
                message if message == done => return Ok(()),
                message => self.take(message)?,
            }
        }
    }

    /// Writes into the current frame, and returns whether that is full.
    fn fill(&mut self, bytes: &mut impl Buf) -> Result<bool, SharedError> {
        let failed = SharedError::io("write a frame");
        let filling = match &mut self.filling {
            Some(filling) => filling,
            none => none.insert(Filling { file: memfd::create().map_err(&failed)?, len: 0 }),
        };
        let chunk = bytes.chunk();
        let room = (self.frame_max - filling.len).min(chunk.len());
        let n = memfd::write_at(filling.file.as_fd(), &chunk[..room], filling.len as u64).map_err(&failed)?;
        filling.len += n;
        bytes.advance(n);
        Ok(filling.len == self.frame_max)
    }

    /// Sends the current frame.
    async fn flush(&mut self) -> Result<(), SharedError> {
        let Some(filling) = self.filling.take() else { return Ok(()) };
        memfd::seal(filling.file.as_fd()).map_err(SharedError::io("seal a frame"))?;
        // Takes credit that has come back already, so that no memory is kept for it.
        let ended = poll_fn(|cx| match self.poll_end(cx) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Ready(Ok(())),
        });
        ended.await?;
        let len = filling.len as u64;
        let frame = Credit { frames: 1, bytes: len };
        self.credit = loop {
            if let Some(rest) = self.credit.minus(frame) {
                break rest;
            }
            let message = poll_fn(|cx| self.poll_message(cx)).await?;
            self.take(message)?;
        };
        let sent = poll_fn(|cx| self.link.poll_send(cx, Message::Frame(len), Some(filling.file.as_fd()))).await;
        sent.map_err(SharedError::io("send a frame"))?;
        self.sent.count(len);
        self.kept.push_back(filling);
        self.kept_bytes += len;
        Ok(())
    }

    /// Takes credit back.
    fn take(&mut self, message: Message) -> Result<(), SharedError> {
        let credit = match message {
            Message::Credit(credit) => credit,
            // The other process takes no more frames.
            Message::Done(_) => return Err(SharedError::ended()),
            _ => return Err(SharedError::violation("a message that only a sender sends")),
        };
        let sum = self.credit.plus(credit, self.granted);
        self.credit = sum.ok_or(SharedError::violation("more credit than was used"))?;
        // Dropped in the order of sending, in which most frames are returned. Both numbers are checked, so that a wrong
        // one cannot keep more than the limits.
        let used = self.granted.minus(self.credit).unwrap_or_default();
        while self.kept.len() > used.frames as usize || self.kept_bytes > used.bytes {
            let Some(returned) = self.kept.pop_front() else { break };
            self.kept_bytes -= returned.len as u64;
        }
        Ok(())
    }

    /// Returns the next message. Limits the time that it takes.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, SharedError>> {
        let Poll::Ready(message) = self.link.poll_message(cx) else {
            return self.silence.poll(cx).map(|()| Err(SharedError::silent()));
        };
        self.silence.end();
        Poll::Ready(message?.map(|(message, _)| message).ok_or_else(SharedError::ended))
    }

    /// As [`poll_message`](Self::poll_message), after the last frame. While frames are out, the other process may take its
    /// time: it owes nothing.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<Result<Message, SharedError>> {
        loop {
            match self.poll_message(cx) {
                Poll::Ready(Err(error)) if error.is_timeout() && self.credit != self.granted => self.silence.end(),
                polled => return polled,
            }
        }
    }

    /// Takes all credit that comes back. Ready only with an error.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<SharedError> {
        loop {
            let next = match ready!(self.link.poll_message(cx)) {
                Ok(Some((message, _))) => self.take(message),
                Ok(None) => Err(SharedError::ended()),
                Err(error) => Err(error),
            };
            self.silence.end();
            if let Err(error) = next {
                return Poll::Ready(error);
            }
        }
    }
}

impl fmt::Debug for FrameSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameSender")
            .field("credit", &self.credit)
            .field("granted", &self.granted)
            .finish_non_exhaustive()
    }
}
