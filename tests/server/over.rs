//! The streams of connections. With each of them a server does the same.

use millstream::net::Accept;
use millstream::server::Server;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

#[cfg(tls)]
mod tls;

/// The stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Over {
    /// Of a listener of this crate.
    Ours,
    /// Of one of tokio.
    Tokio,
    /// Of a listener of this crate, with TLS.
    #[cfg(tls)]
    Tls,
}

pub(crate) const ALL: [Over; 2 + cfg!(tls) as usize] = [
    Over::Ours,
    Over::Tokio,
    #[cfg(tls)]
    Over::Tls,
];

/// Those of a listener of this crate.
pub(crate) const OF_OURS: [Over; 1 + cfg!(tls) as usize] = [
    Over::Ours,
    #[cfg(tls)]
    Over::Tls,
];

impl Over {
    /// Returns the server, with TLS if the stream has it.
    pub(crate) fn secured<L: Accept, S>(self, server: Server<L, S>) -> Server<L, S> {
        match self {
            Self::Ours | Self::Tokio => server,
            #[cfg(tls)]
            Self::Tls => server.tls(tls::TLS.0.clone()),
        }
    }

    /// Returns the stream of a client, after the handshake if there is one.
    pub(crate) async fn client(self, socket: TcpStream) -> Box<dyn Io> {
        match self {
            Self::Ours | Self::Tokio => Box::new(socket),
            #[cfg(tls)]
            Self::Tls => Box::new(tls::connect(socket).await),
        }
    }
}

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Io for S {}
