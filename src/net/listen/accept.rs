//! Listeners that a server accepts: those of this crate, those of tokio, and any other type.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "server")]
use super::accept_failures::Failures;
#[cfg(feature = "server")]
use crate::counters::{Counter, count};
#[cfg(feature = "server")]
use crate::net::stream::CountedIo;
use crate::net::stream::{PeerAddr, Rewind, Seen, TakeOver};

/// A listener, as accepted by [`server::serve`](crate::server::serve()). You can implement it: wrap streams of other
/// crates in [`CountedIo`](crate::net::CountedIo).
///
/// ```
/// use std::io;
///
/// use millstream::net::{Accept, CountedIo};
/// use tokio::io::DuplexStream;
/// use tokio::sync::{Mutex, mpsc};
///
/// /// Connections inside this process.
/// struct Channel(Mutex<mpsc::Receiver<DuplexStream>>);
///
/// impl Accept for Channel {
///     type Stream = CountedIo<DuplexStream>;
///     type Addr = ();
///
///     async fn accept(&self) -> io::Result<(Self::Stream, ())> {
///         let stream = self.0.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
///         Ok((CountedIo::new(stream), ()))
///     }
/// }
/// ```
pub trait Accept: Send + Sync + 'static {
    /// Type of the connections.
    type Stream: Transport;
    /// Type of the peer addresses.
    type Addr: PeerAddr;

    /// Accepts a connection. An error ends the server, so errors of single connections must be skipped; see
    /// [`TcpListener::accept`](crate::net::TcpListener::accept). The future must be cancel safe.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Self::Addr)>> + Send;
}

/// A stream that a server can watch: [`TcpStream`](crate::net::TcpStream), [`UnixStream`](crate::net::UnixStream), or
/// [`CountedIo`](crate::net::CountedIo) around any other. Sealed.
pub trait Transport:
    hyper::rt::Read + hyper::rt::Write + AsyncRead + AsyncWrite + Rewind + Seen + TakeOver + Unpin + Send + 'static
{
}

impl<T> Transport for T where
    T: hyper::rt::Read + hyper::rt::Write + AsyncRead + AsyncWrite + Rewind + Seen + TakeOver + Unpin + Send + 'static
{
}

/// Implements the trait for a listener of tokio.
#[cfg(feature = "server")]
macro_rules! accept_of_tokio {
    ($listener:ty, $stream:ty, $addr:ty) => {
        impl Accept for $listener {
            type Stream = CountedIo<$stream>;
            type Addr = $addr;

            async fn accept(&self) -> io::Result<(Self::Stream, Self::Addr)> {
                let mut failures = Failures::default();
                loop {
                    match Self::accept(self).await {
                        Ok((stream, addr)) => {
                            count(Counter::Accepted, 1);
                            return Ok((CountedIo::new(stream), addr));
                        }
                        Err(e) => failures.wait(e).await?,
                    }
                }
            }
        }
    };
}
#[cfg(feature = "server")]
accept_of_tokio!(tokio::net::TcpListener, tokio::net::TcpStream, std::net::SocketAddr);
#[cfg(all(unix, feature = "server"))]
accept_of_tokio!(tokio::net::UnixListener, tokio::net::UnixStream, tokio::net::unix::SocketAddr);
