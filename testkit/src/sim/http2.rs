//! Bodies of HTTP/2, as both sides of `h2` send and read them, and sockets that outlive its connections.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Sends bytes as the window of the peer allows.
///
/// # Errors
///
/// The stream or its connection has ended.
pub async fn send_all(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let n = match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(n) => n?.min(bytes.len()),
            None => return Err(Reason::CANCEL.into()),
        };
        stream.send_data(bytes.split_to(n), false)?;
    }
    Ok(())
}

/// Reads a body. Returns also how it ended, if it is not whole.
pub async fn read(mut body: RecvStream) -> (Vec<u8>, Option<h2::Error>) {
    let mut bytes = Vec::new();
    loop {
        match read_some(&mut body).await {
            Ok(Some(data)) => bytes.extend(data),
            Ok(None) => return (bytes, None),
            Err(error) => return (bytes, Some(error)),
        }
    }
}

/// Reads what has come of a body; `None` at its end.
///
/// # Errors
///
/// The stream or its connection has ended before.
pub async fn read_some(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let Some(data) = body.data().await.transpose()? else { return Ok(None) };
    let _ = body.flow_control().release_capacity(data.len());
    Ok(Some(data))
}

/// A socket that is left when the connection of `h2` has ended.
#[derive(Debug)]
pub struct Lent<T>(Arc<Mutex<T>>);

impl<T> Lent<T> {
    pub fn new(socket: T) -> Self {
        Self(Arc::new(Mutex::new(socket)))
    }

    pub fn socket(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the socket.
    ///
    /// # Panics
    ///
    /// A connection has it.
    pub fn into_inner(self) -> T {
        let socket = Arc::into_inner(self.0).expect("a connection that was dropped");
        socket.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Lent<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lent<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket()).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Lent<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket()).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket()).poll_shutdown(cx)
    }
}
