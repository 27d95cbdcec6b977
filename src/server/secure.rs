//! TLS connections of a server (feature `tls`).

use super::adapter::Adapter;
use super::body_error::BoxError;
use super::conn_state::ShutdownPhase;
use super::connection::{aborted, connection, speak};
use super::http_service::HttpService;
use super::protocols::Protocols;
use super::version::Version;
use crate::net::Rewind;
use crate::server::tls::Tls;

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
