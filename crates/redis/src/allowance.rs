//! Limit on the bytes of one Redis reply: longer replies are rejected, not buffered.
//!
//! The parser of the redis crate buffers a reply until it is complete, at any length. So the bytes are counted on
//! receipt, from one request to the next.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use redis::RedisError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};

/// Maximum size of an event. Redis would accept up to 512 MiB, but much smaller events would block it.
pub(crate) const EVENT_MAX: usize = 16 << 20;

/// Maximum length of a reply: room for the three largest entries that one read of the log may return.
pub(crate) const REPLY_MAX: usize = 4 * EVENT_MAX;

/// Limit for replies without entries: ids, and the output of INFO.
const PLAIN: usize = 1 << 20;

/// Limit on the replies to one connection, shared with its stream.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Arc<AllowanceInner>);

#[derive(Debug)]
struct AllowanceInner {
    bytes: AtomicUsize,
    exceeded: AtomicBool,
}

impl Allowance {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AllowanceInner { bytes: AtomicUsize::new(PLAIN), exceeded: AtomicBool::new(false) }))
    }

    pub(crate) fn set(&self, bytes: usize) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn was_exceeded(&self) -> bool {
        self.0.exceeded.load(Ordering::Relaxed)
    }

    /// Returns the cause of a failed request: the redis crate does not always return the error of the stream.
    pub(crate) fn explain(&self, error: RedisError) -> RedisError {
        if self.was_exceeded() { self.refusal().into() } else { error }
    }

    fn refusal(&self) -> io::Error {
        let (bytes, most) = (self.0.bytes.load(Ordering::Relaxed), EVENT_MAX >> 20);
        let message = format!(
            "a reply of more than {bytes} bytes was refused: no event of the log may be larger than {most} MiB; remove \
             the entries of other programs"
        );
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

/// A stream that fails if it receives more bytes between two writes than its allowance. It reads only one byte more than
/// that, whatever the buffer has room for.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: Take<S>,
    allowance: Allowance,
    received: usize,
}

impl<S: AsyncRead> Metered<S> {
    pub(crate) fn new(stream: S, allowance: Allowance) -> Self {
        Self { stream: stream.take(0), allowance, received: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // The task of the connection reads on after an error.
        if self.allowance.was_exceeded() {
            return Poll::Ready(Err(self.allowance.refusal()));
        }
        let (allowed, before) = (self.allowance.0.bytes.load(Ordering::Relaxed), buf.filled().len());
        let more = allowed.saturating_sub(self.received) as u64 + 1;
        self.stream.set_limit(more);
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.received += buf.filled().len() - before;
        if self.received <= allowed {
            return Poll::Ready(Ok(()));
        }
        self.allowance.0.exceeded.store(true, Ordering::Relaxed);
        Poll::Ready(Err(self.allowance.refusal()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(self.stream.get_mut()).poll_write(cx, buf))?;
        self.received = 0;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_received_counts_from_one_write_to_the_next() {
        let (stream, mut peer) = tokio::io::duplex(1 << 10);
        let allowance = Allowance::new();
        let mut metered = Metered::new(stream, allowance.clone());
        allowance.set(100);
        let mut buf = [0; 200];
        for _ in 0..3 {
            metered.write_all(b"?").await.unwrap();
            peer.write_all(&[0; 100]).await.unwrap();
            assert_eq!(metered.read(&mut buf).await.unwrap(), 100);
        }
        assert!(!allowance.was_exceeded());
        peer.write_all(&[0; 50]).await.unwrap();
        let error = metered.read(&mut buf).await.unwrap_err();
        assert!(error.to_string().contains("more than 100 bytes"), "{error}");
        assert!(allowance.was_exceeded());
        assert_eq!(metered.received, 101, "no more enters the process, although the buffer has room");
        peer.write_all(&[0; (1 << 10) - 49]).await.unwrap();
        metered.read(&mut buf).await.unwrap_err();
        assert_eq!(peer.write(&[0]).now_or_never().map(Result::unwrap), None, "nothing more is read");
    }
}
