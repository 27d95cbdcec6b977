//! TLS connections of a server (feature `tls`).

use super::adapter::Adapter;
use super::body_error::BoxError;
use super::conn_state::ShutdownPhase;
use super::connection::{aborted, connection, speak};
use super::http_service::HttpService;
use super::protocols::Protocols;
use super::serve::Serve;
use super::version::Version;
use crate::net::{Accept, Rewind};
use crate::server::tls::Tls;

impl<L: Accept, S> Serve<L, S> {
    /// Serves over TLS only: HTTP/2 or HTTP/1.1 as negotiated by ALPN, or without ALPN by the client's first bytes. A
    /// client that speaks HTTP without TLS is answered with 400.
    ///
    /// The handshake must complete within the [limit](super::Limits) for the first request. A connection whose
    /// handshake fails is closed and counted. An upgrade yields a [`TlsStream`](crate::server::tls::TlsStream) around
    /// the listener's stream.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}

pub(super) async fn secure<I, S>(
    tls: &Tls,
    protocols: &Protocols,
    stream: I,
    adapter: Adapter<S>,
) -> Result<(), BoxError>
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Rewind + Unpin + Send + 'static,
    S: HttpService,
{
    // Before the end of the handshake the client cannot be answered.
    let conn_state = adapter.conn_state();
    let stream =
        conn_state.unless_raised(ShutdownPhase::Nothing, tls.accept(stream)).await.map_err(|_| aborted())??;
    let version = match stream.alpn() {
        Some(b"h2") => Version::Two,
        Some(_) => Version::One,
        None => return connection(protocols, stream, adapter).await,
    };
    speak(version, protocols, stream, adapter).await
}
