//! Streams of both families, for tests that cover both.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use millstream::net::{Handle, TcpStream, UnixListener, UnixStream};
use tokio::io::{AsyncRead, AsyncWrite};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

/// One of our stream types, with constructors.
pub trait Family: AsyncRead + AsyncWrite + AsFd + Debug + Unpin + Send + Sized + 'static {
    /// tokio's stream of the same family.
    type Theirs: AsyncRead + AsyncWrite + AsFd + Debug + Unpin + Send + 'static;

    /// Creates a connection of ours that gathers for at most `gather`, and its other end.
    fn pair_with(gather: Duration) -> impl Future<Output = (Self, Self::Theirs)> + Send;

    /// Creates a connection of ours that gathers as long as writes continue, and its other end.
    fn pair() -> impl Future<Output = (Self, Self::Theirs)> + Send {
        Self::pair_with(LONG)
    }

    fn handle(&self) -> Handle;

    fn queued(&self) -> usize;

    fn flushed(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Takes the socket of the other end from its runtime.
    fn detach(theirs: Self::Theirs) -> OwnedFd;
}

impl Family for TcpStream {
    type Theirs = tokio::net::TcpStream;

    async fn pair_with(gather: Duration) -> (Self, Self::Theirs) {
        crate::pair_with(gather).await
    }

    fn handle(&self) -> Handle {
        self.handle()
    }

    fn queued(&self) -> usize {
        self.queued()
    }

    async fn flushed(&mut self) -> io::Result<()> {
        self.flushed().await
    }

    fn detach(theirs: Self::Theirs) -> OwnedFd {
        theirs.into_std().unwrap().into()
    }
}

impl Family for UnixStream {
    type Theirs = tokio::net::UnixStream;

    async fn pair_with(gather: Duration) -> (Self, Self::Theirs) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::builder().gather_limit(gather).bind(&path).await.unwrap();
        let client = tokio::net::UnixStream::connect(&path).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    fn handle(&self) -> Handle {
        self.handle()
    }

    fn queued(&self) -> usize {
        self.queued()
    }

    async fn flushed(&mut self) -> io::Result<()> {
        self.flushed().await
    }

    fn detach(theirs: Self::Theirs) -> OwnedFd {
        theirs.into_std().unwrap().into()
    }
}
