//! The handshake of a connection over TLS, and what it agrees on (feature `tls`).

use std::sync::Arc;

use super::conn_state::{ConnState, ShutdownPhase};
use super::connection::{aborted, connection, speak};
use super::http_service::{BoxError, HttpService};
use super::protocols::Protocols;
use super::server::Serve;
use super::version::Version;
use crate::net::{Accept, Rewind};
use crate::server::tls::Tls;

impl<L: Accept, S> Serve<L, S> {
    /// Serves over TLS and nothing else: HTTP/2 or HTTP/1.1, as ALPN agrees on; without it, as the client begins. A
    /// client that speaks HTTP without TLS is answered with 400.
    ///
    /// The handshake has to be done within the [limit](super::Limits) for the first request. A connection whose
    /// handshake fails is closed and counted, and the server goes on. What an upgrade gives back is a
    /// [`TlsStream`](crate::server::tls::TlsStream) around the stream of the listener.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}

/// Runs a connection over TLS, from its first byte to its end.
pub(super) async fn secure<I, S>(
    tls: &Tls,
    protocols: &Protocols,
    stream: I,
    service: S,
    conn_state: &Arc<ConnState>,
) -> Result<(), BoxError>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Rewind + Unpin + Send + 'static,
    S: HttpService,
{
    // There are no words yet in which it could be told.
    let stream = conn_state.unless_told(ShutdownPhase::Nothing, tls.accept(stream)).await.map_err(|_| aborted())??;
    let version = match stream.alpn() {
        Some(b"h2") => Version::Two,
        Some(_) => Version::One,
        None => return connection(protocols, stream, service, conn_state).await,
    };
    speak(version, protocols, stream, service, conn_state).await
}
