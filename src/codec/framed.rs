//! Framed messages: all requests of one read are answered by one write.
//!
//! Both halves write: the sink, and the stream before it waits and before it ends. If the halves belong to two tasks,
//! both may wait for the inner writer, which stores one waker only. That waker then wakes both tasks.

use std::fmt;
use std::io;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::codec::{Decoder, Encoder};
use tokio_util::io::poll_read_buf;

use super::buffer_cache::{self, BUFFER_MAX, BUFFER_MIN};
use crate::codec::adaptive_size::AdaptiveSize;
use crate::counters::{Counter, count};

/// Number of encoded bytes at which senders wait.
const FULL: usize = 64 << 10;

pin_project! {
    /// A stream of decoded messages and a sink of messages to encode, over any reader and writer.
    ///
    /// Replaces `tokio_util::codec::Framed`, with the same [`Decoder`]s and [`Encoder`]s, for protocols whose peers
    /// send messages without waiting for each answer. One read may yield many messages; answers that were *fed* are
    /// written in one write before the next read.
    ///
    /// ```
    /// use futures_util::{SinkExt, StreamExt};
    /// use millstream::codec::Framed;
    /// use tokio_util::codec::LinesCodec;
    ///
    /// # async fn serve(socket: tokio::net::TcpStream) -> Result<(), tokio_util::codec::LinesCodecError> {
    /// let mut lines = Framed::new(socket, LinesCodec::new_with_max_length(256));
    /// while let Some(line) = lines.next().await {
    ///     lines.feed(line?).await?; // not `send`, which writes at once
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Memory
    ///
    /// Messages need no allocation once the buffers have their size, provided that messages are dropped before the next
    /// read: a buffer is reused when no message refers to it. Reads ask for 8 KiB to 64 KiB, depending on the input. An
    /// idle connection holds no buffer unless a message is incomplete; unused buffers are cached for each thread. At 64
    /// KiB of encoded messages [`Sink::poll_ready`] writes and waits; one message may exceed that. The codec limits the
    /// length of a message.
    ///
    /// # Errors
    ///
    /// Errors of the codec and of reading end the stream: `None` follows, permanently. Write errors are returned by the
    /// sink, and by the stream if it was writing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. Dropping this loses messages that were encoded and not written. The stream writes before it waits
    /// and before it ends; close or flush a sink before dropping it.
    pub struct Framed<T, C> {
        #[pin]
        io: T,
        codec: C,
        read: BytesMut,
        // Number of bytes of the last read, and the size of the next.
        brought: usize,
        size: AdaptiveSize,
        // Whether `read` may contain a complete message.
        readable: bool,
        ended: bool,
        failed: bool,
        write: BytesMut,
        unflushed: bool,
        writers: Writers,
    }
}

/// One half of a [`Framed`].
#[derive(Clone, Copy)]
enum Half {
    Stream,
    Sink,
}

/// The tasks that wait to write, by half. A task stays registered until everything is written, even if it has dropped
/// its future. So it may be woken without need, but no wake-up is lost.
#[derive(Default)]
struct Writers {
    stream: Option<Waker>,
    sink: Option<Waker>,
}

/// Wakes the tasks of both halves.
struct Both([Waker; 2]);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.iter().for_each(Waker::wake_by_ref);
    }
}

impl Writers {
    /// Returns the waker of the other half, if its task waits and is not that of `cx`.
    fn other(&mut self, half: Half, cx: &Context<'_>) -> Option<&Waker> {
        let other = match half {
            Half::Stream => &self.sink,
            Half::Sink => &self.stream,
        };
        other.as_ref().filter(|other| !other.will_wake(cx.waker()))
    }

    /// Polls `write` for one half, so that its progress wakes each half that waits.
    fn poll<T>(
        &mut self,
        half: Half,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let both = self.other(half, cx).map(|other| Waker::from(Arc::new(Both([other.clone(), cx.waker().clone()]))));
        let written = write(&mut both.as_ref().map_or_else(|| Context::from_waker(cx.waker()), Context::from_waker));
        if written.is_ready() {
            if let Some(other) = self.other(half, cx) {
                other.wake_by_ref();
            }
            *self = Self::default();
            return written;
        }
        let waker = match half {
            Half::Stream => &mut self.stream,
            Half::Sink => &mut self.sink,
        };
        match waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        written
    }
}

impl<T, C> Framed<T, C> {
    /// Creates a stream and sink of messages of `codec` over `io`.
    pub fn new(io: T, codec: C) -> Self {
        Self {
            io,
            codec,
            read: BytesMut::new(),
            brought: 0,
            size: AdaptiveSize::new(BUFFER_MIN..=BUFFER_MAX / 2, BUFFER_MIN),
            readable: false,
            ended: false,
            failed: false,
            write: BytesMut::new(),
            unflushed: false,
            writers: Writers::default(),
        }
    }

    /// Returns the inner reader and writer.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// Returns the inner reader and writer mutably. Bytes read or written directly bypass the messages.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    /// Returns the codec.
    pub fn codec(&self) -> &C {
        &self.codec
    }

    /// Returns the number of encoded bytes that are not written yet.
    pub fn queued(&self) -> usize {
        self.write.len()
    }
}

impl<T: AsyncWrite, C> Framed<T, C> {
    /// Writes and flushes all messages for one half.
    fn poll_write_out(self: Pin<&mut Self>, half: Half, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.project();
        if me.write.is_empty() && !*me.unflushed {
            return Poll::Ready(Ok(()));
        }
        let (mut io, write, unflushed) = (me.io, me.write, me.unflushed);
        me.writers.poll(half, cx, |cx| {
            while !write.is_empty() {
                let n = ready!(io.as_mut().poll_write(cx, write))?;
                if n == 0 {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::WriteZero,
                        "the inner writer accepted 0 bytes of a message",
                    )));
                }
                count(Counter::InnerWrites, 1);
                write.advance(n);
                *unflushed = true;
            }
            buffer_cache::give(take(write));
            ready!(io.as_mut().poll_flush(cx))?;
            *unflushed = false;
            Poll::Ready(Ok(()))
        })
    }
}

impl<T: AsyncRead, C> Framed<T, C> {
    fn poll_read_in(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let me = self.project();
        let want = me.size.size();
        if me.read.capacity() == 0 {
            *me.read = buffer_cache::take();
        }
        let room = me.read.capacity() - me.read.len();
        if room < want / 2 {
            // Moves an incomplete message to the front if `want` is enough for both.
            me.read.reserve(if me.read.len() < want / 2 { want - me.read.len() } else { want });
        }
        let room = me.read.capacity() - me.read.len();
        let read = poll_read_buf(me.io, cx, me.read);
        if let Poll::Ready(Ok(n)) = read {
            let now = Instant::now();
            me.size.left(std::mem::replace(me.brought, n), now);
            me.size.came(n, now);
            if n == room {
                me.size.mark_full(now);
            }
        } else if me.read.is_empty() {
            buffer_cache::give(take(me.read));
        }
        read
    }
}

impl<T, C> Stream for Framed<T, C>
where
    T: AsyncRead + AsyncWrite,
    C: Decoder,
{
    type Item = Result<C::Item, C::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.failed {
                return Poll::Ready(None);
            }
            let me = self.as_mut().project();
            if *me.readable {
                let decoded = if *me.ended { me.codec.decode_eof(me.read) } else { me.codec.decode(me.read) };
                match decoded {
                    Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                    Ok(None) => *me.readable = false,
                    Err(e) => {
                        *me.failed = true;
                        return Poll::Ready(Some(Err(e)));
                    }
                }
            }
            // No more messages can be answered before the next read. A peer that accepts no answers may still send.
            let written = self.as_mut().poll_write_out(Half::Stream, cx);
            if let Poll::Ready(Err(e)) = written {
                *self.project().failed = true;
                return Poll::Ready(Some(Err(e.into())));
            }
            if self.ended {
                ready!(written)?;
                return Poll::Ready(None);
            }
            match ready!(self.as_mut().poll_read_in(cx)) {
                Ok(n) => {
                    let me = self.as_mut().project();
                    *me.readable = true;
                    *me.ended = n == 0;
                }
                Err(e) => {
                    *self.project().failed = true;
                    return Poll::Ready(Some(Err(e.into())));
                }
            }
        }
    }
}

impl<T, C, M> Sink<M> for Framed<T, C>
where
    T: AsyncWrite,
    C: Encoder<M>,
{
    type Error = C::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        match self.write.len() {
            FULL.. => self.poll_write_out(Half::Sink, cx).map_err(Into::into),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn start_send(self: Pin<&mut Self>, message: M) -> Result<(), C::Error> {
        let me = self.project();
        if me.write.capacity() == 0 {
            *me.write = buffer_cache::take();
        }
        me.codec.encode(message, me.write)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.poll_write_out(Half::Sink, cx).map_err(Into::into)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        ready!(self.as_mut().poll_write_out(Half::Sink, cx))?;
        self.project().io.poll_shutdown(cx).map_err(Into::into)
    }
}

impl<T: fmt::Debug, C: fmt::Debug> fmt::Debug for Framed<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framed")
            .field("io", &self.io)
            .field("codec", &self.codec)
            .field("unread", &self.read.len())
            .field("queued", &self.write.len())
            .finish_non_exhaustive()
    }
}
