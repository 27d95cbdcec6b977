//! A server with TLS, and its clients.

use std::sync::{Arc, LazyLock};

use millstream::server::tls::Tls;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;

/// A certificate, and a client that trusts it. Made once, because key generation is slow.
pub(crate) static TLS: LazyLock<(Tls, Arc<ClientConfig>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
    let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
    (tls, Arc::new(testkit::tls::client([made.cert.into()]).with_no_client_auth()))
});

pub(crate) async fn connect(socket: TcpStream) -> TlsStream<TcpStream> {
    TlsConnector::from(Arc::clone(&TLS.1)).connect("mill".try_into().unwrap(), socket).await.unwrap()
}
