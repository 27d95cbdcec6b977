//! The connections of a listener as a `Stream`.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio_util::sync::ReusableBoxFuture;

use super::accept::Accept;
use super::tcp::TcpListener;
#[cfg(unix)]
use super::unix::UnixListener;

type Accepted<L> = io::Result<(<L as Accept>::Stream, <L as Accept>::Addr)>;

/// The connections of a listener, from [`TcpListener::incoming`] and [`UnixListener::incoming`]; for tonic's
/// `serve_with_incoming` (feature `tonic-014`). Skips failed connections like the listener itself.
///
/// Ends after an error, which means that the listener is broken. Dropping the stream closes the listener.
pub struct Incoming<L: Accept> {
    listener: Arc<L>,
    /// The accept future; its memory is reused for every connection. `None` after an error.
    accepting: Option<ReusableBoxFuture<'static, Accepted<L>>>,
}

impl<L: Accept> Incoming<L> {
    fn new(listener: L) -> Self {
        let listener = Arc::new(listener);
        Self { accepting: Some(ReusableBoxFuture::new(accept(Arc::clone(&listener)))), listener }
    }
}

async fn accept<L: Accept>(listener: Arc<L>) -> Accepted<L> {
    listener.accept().await
}

impl<L: Accept> AsRef<L> for Incoming<L> {
    fn as_ref(&self) -> &L {
        &self.listener
    }
}

impl<L: Accept> Stream for Incoming<L> {
    type Item = io::Result<L::Stream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let listener = Arc::clone(&self.listener);
        let Some(accepting) = &mut self.accepting else { return Poll::Ready(None) };
        let accepted = ready!(accepting.poll(cx));
        if accepted.is_err() {
            self.accepting = None;
        } else {
            accepting.set(accept(listener));
        }
        Poll::Ready(Some(accepted.map(|(stream, _)| stream)))
    }
}

impl<L: Accept + fmt::Debug> fmt::Debug for Incoming<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Incoming").field(&self.listener).finish()
    }
}

impl TcpListener {
    /// Returns the connections as a stream.
    pub fn incoming(self) -> Incoming<Self> {
        Incoming::new(self)
    }
}

#[cfg(unix)]
impl UnixListener {
    /// Returns the connections as a stream.
    pub fn incoming(self) -> Incoming<Self> {
        Incoming::new(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::os::fd::AsFd;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn yields_connections_and_ends_after_an_error() {
        let mut incoming = TcpListener::bind("127.0.0.1:0").await.unwrap().incoming();
        let addr = incoming.as_ref().local_addr().unwrap();
        for _ in 0..3 {
            let client = TcpStream::connect(addr).await.unwrap();
            let stream = poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await.unwrap().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
        }
        rustix::net::shutdown(incoming.as_ref().as_fd(), rustix::net::Shutdown::Both).unwrap();
        assert!(poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await.unwrap().is_err());
        assert!(poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await.is_none());
    }
}
