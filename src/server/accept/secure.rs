//! TLS connections of a server (features `tls-ring` and `tls-aws-lc-rs`).

use std::pin::pin;
use std::sync::Arc;

use crate::net::{Rewind, TakeOver};
use crate::server::connection::{ConnectionStep, Next, Protocols, Version, aborted, connection, speak};
use crate::server::request::{Adapter, HttpService};
use crate::server::state::ShutdownPhase;
use crate::server::tls::{ClientCertificate, Tls};

/// Begins a connection over TLS.
pub(super) fn secure<I, S>(tls: Tls, protocols: Arc<Protocols>, stream: I, mut adapter: Adapter<S>) -> ConnectionStep
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Rewind + TakeOver + Unpin + Send + 'static,
    S: HttpService,
{
    Box::pin(async move {
        // Before the end of the handshake the client cannot be answered.
        let handshake = pin!(tls.accept(stream));
        let accepted = adapter.conn_state().unless_raised(ShutdownPhase::Nothing, handshake).await;
        let mut stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Next::Ended(Err(error.into())),
            Err(_) => return Next::Ended(Err(aborted())),
        };
        adapter.conn_state().mark_secured(stream.decrypted());
        if let Some(chain) = stream.session().peer_certificates() {
            adapter.extensions_mut().insert(ClientCertificate::new(chain));
        }
        let version = match stream.alpn() {
            Some(b"h2") => Version::Two,
            Some(_) => Version::One,
            None => return Next::Step(connection(protocols, stream, adapter)),
        };
        Next::Step(speak(version, protocols, stream, adapter))
    })
}
