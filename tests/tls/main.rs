//! `server::serve` over TLS, with a rustls client.
#![cfg(tls)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response, header};
use millstream::files::Files;
use millstream::net::TcpListener;
use millstream::server;
use millstream::server::tls::{ClientCertificate, Tls, TlsBuilder};
use millstream::server::{Limits, RequestBody};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, yield_now};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

mod abuse;
mod clients;
mod counts;
mod files;
mod gone;
mod keep_alive;
mod protocols;
mod records;
mod reload;
mod several;
mod silent;
use testkit::http::{Answer, Raw, boxed};
use testkit::serving::serve;
use testkit::tls::any_client;
use testkit::tree::{KEPT, LARGE, believed, tree, truncate};

struct Identity {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
}

impl Identity {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem(), der: made.cert.into() }
    }

    fn tls(&self) -> Tls {
        self.builder().build().unwrap()
    }

    fn builder(&self) -> TlsBuilder {
        Tls::builder().certificate_pem(&self.certificate, &self.key)
    }
}

/// Two identities, shared by all tests because key generation is slow.
static IDENTITIES: LazyLock<[Identity; 2]> = LazyLock::new(|| [Identity::new(), Identity::new()]);

const BOTH: &[&SupportedProtocolVersion] =
    &[&tokio_rustls::rustls::version::TLS12, &tokio_rustls::rustls::version::TLS13];

/// A client that trusts both identities and stores session tickets.
fn client(versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for identity in IDENTITIES.iter() {
        roots.add(identity.der.clone()).unwrap();
    }
    let mut config = any_client(versions).with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

async fn shake<S>(config: &Arc<ClientConfig>, io: S) -> std::io::Result<TlsStream<S>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    TlsConnector::from(Arc::clone(config)).connect(ServerName::try_from("mill").unwrap(), io).await
}

async fn connect(addr: SocketAddr, config: &Arc<ClientConfig>) -> TlsStream<TcpStream> {
    shake(config, TcpStream::connect(addr).await.unwrap()).await.unwrap()
}

async fn get(addr: SocketAddr, config: &Arc<ClientConfig>, path: &str) -> (u16, Vec<u8>) {
    Raw::over(connect(addr, config).await).get(path).await
}

/// `/tokens` yields to the runtime after each token.
const TOKENS: usize = 100;
const TOKEN: &[u8] = b"data: {\"token\": \"hello world this is\"}\n\n";

struct Server {
    addr: SocketAddr,
    tree: TempDir,
    bytes: Vec<u8>,
    task: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(tls: Tls) -> Self {
        Self::limited(tls, Limits::default()).await
    }

    async fn limited(tls: Tls, limits: Limits) -> Self {
        // Gathering must not depend on the load of the machine.
        let listener = TcpListener::builder().gather_limit(Duration::from_secs(60)).bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (tree, bytes) = tree();
        let (files, dir) = (believed(&tree), tree.path().to_owned());
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let (files, dir) = (files.clone(), dir.clone());
            async move { Ok::<_, Infallible>(answer(&files, &dir, request).await) }
        });
        let task = tokio::spawn(serve(listener, service).limits(limits).tls(tls).into_future());
        Self { addr, tree, bytes, task: task.abort_handle() }
    }
}

async fn answer(files: &Files, dir: &std::path::Path, request: Request<RequestBody>) -> Answer {
    match request.uri().path() {
        "/version" => Response::new(boxed(Full::from(format!("{:?}", request.version())))),
        "/tokens" => {
            let tokens = futures_util::stream::unfold(0, async |n| {
                yield_now().await;
                (n < TOKENS).then_some((Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(TOKEN))), n + 1))
            });
            Response::new(boxed(StreamBody::new(Box::pin(tokens))))
        }
        "/client" => {
            let certificate = request.extensions().get::<ClientCertificate>();
            Response::new(boxed(Full::from(certificate.map_or("none".to_owned(), |shown| format!("{shown:?}")))))
        }
        "/mirror" => protocols::mirror(request),
        _ => testkit::tree::ask_and_cut(files, dir, &request).await,
    }
}
