//! The connections of the listener, for tonic's server.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::unfold;
use http::Extensions;
use millstream::net::{Accept, PeerAddr, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::listener::ProxyListener;

/// A connection for tonic's server, from [`ProxyListener::incoming`]. `remote_addr` of its requests is the address of
/// the client.
#[derive(Debug)]
pub struct ProxyStream<S> {
    stream: S,
    info: TcpConnectInfo,
}

impl<L: Accept> ProxyListener<L> {
    /// Returns the connections as a stream, for tonic's `serve_with_incoming`. It ends after an error, which means that
    /// the listener is broken.
    ///
    /// Requests have no [`ProxyHeader`](crate::ProxyHeader) there. [`serve`](millstream::server::serve()) takes tonic's
    /// services too, and gives their requests one.
    pub fn incoming(self) -> impl Stream<Item = io::Result<ProxyStream<L::Stream>>> + Send {
        unfold(Some(self), async |listener| {
            let listener = listener?;
            Some(match listener.accept().await {
                Ok((stream, peer)) => (Ok(ProxyStream::new(stream, &peer)), Some(listener)),
                Err(error) => (Err(error), None),
            })
        })
    }
}

impl<S: Transport> ProxyStream<S> {
    fn new(stream: S, peer: &impl PeerAddr) -> Self {
        let handle = stream.seen();
        let mut extensions = Extensions::new();
        peer.identify(&handle, &mut extensions);
        // Peers of Unix sockets have no such address.
        let none = || TcpConnectInfo { local_addr: handle.local_addr(), remote_addr: None };
        Self { info: extensions.remove().unwrap_or_else(none), stream }
    }
}

impl<S> Connected for ProxyStream<S> {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.info.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ProxyStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProxyStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
