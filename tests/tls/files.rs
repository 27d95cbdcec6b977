//! TLS over this crate's stream. Encryption reads the bytes of a file and may hit its end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use millstream::files::Files;
use millstream::net::TcpListener;
use millstream::server::tls::Tls;
use socket2::SockRef;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use testkit::http::{Raw, narrow, on_both, sha256};
use testkit::tree::{KEPT, LARGE, SEND_BUFFER, ask_and_cut, believed, tree, truncate};

const HOUR: Duration = Duration::from_secs(3600);

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let client = testkit::tls::client([made.cert.der().clone()]).with_no_client_auth();
    let server = testkit::tls::server().with_single_cert(vec![made.cert.into()], key).unwrap();
    (Arc::new(server), Arc::new(client))
}

#[derive(Clone, Copy, Debug)]
enum By {
    /// This crate's stream, with mapped files.
    Ours,
    /// A stream without support for mapped files, with files read into memory.
    Theirs,
}

async fn serve(dir: &TempDir, config: Arc<ServerConfig>, by: By) -> SocketAddr {
    let files = match by {
        By::Ours => believed(dir),
        By::Theirs => Files::builder(dir.path()).validate_every(HOUR).mapped(false).build().unwrap(),
    };
    let dir = dir.path().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER.unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (tls, acceptor) = (Tls::from_config(Arc::clone(&config)), TlsAcceptor::from(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (tls, acceptor, files, dir) = (tls.clone(), acceptor.clone(), files.clone(), dir.clone());
            tokio::spawn(async move {
                let service = service_fn(async |request| {
                    Ok::<_, Infallible>(ask_and_cut::<Incoming>(&files, &dir, &request).await)
                });
                let http = http1::Builder::new();
                let _ended: hyper::Result<()> = match by {
                    By::Ours => http.serve_connection(tls.accept(stream).await.unwrap(), service).await,
                    By::Theirs => {
                        http.serve_connection(TokioIo::new(acceptor.accept(stream).await.unwrap()), service).await
                    }
                };
            });
        }
    });
    addr
}

async fn connect(addr: SocketAddr, config: &Arc<ClientConfig>) -> Raw<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::clone(config));
    let io = narrow(addr).await;
    Raw::over(connector.connect(ServerName::try_from("mill").unwrap(), io).await.unwrap())
}

#[test]
fn files_arrive_whole_over_tls() {
    on_both(async || {
        for by in [By::Ours, By::Theirs] {
            let (dir, bytes) = tree();
            let (server, client) = configs();
            let addr = serve(&dir, server, by).await;
            let mut client = connect(addr, &client).await;
            for (path, len) in [("/large", LARGE), ("/kept", KEPT), ("/fine", 4)] {
                let (status, got) = client.get(path).await;
                let expected = if len == 4 { sha256("fine") } else { sha256(&bytes[..len]) };
                assert_eq!((status, sha256(got)), (200, expected), "{path}, {by:?}");
            }
        }
    });
}

#[test]
fn a_file_truncated_while_it_is_encrypted_is_no_response() {
    on_both(async || {
        for (left, by) in [(0, By::Ours), (1_000_001, By::Ours), (1_000_001, By::Theirs)] {
            let (dir, bytes) = tree();
            let (server, client) = configs();
            let addr = serve(&dir, server, by).await;
            let mut victim = connect(addr, &client).await;
            victim.ask("/large").await;
            let head = victim.head().await;
            assert_eq!((head.status, head.content_length()), (200, LARGE));
            truncate(&dir.path().join("large"), left);
            let cut =
                victim.body(LARGE).await.map(|got| got.len()).expect_err("the truncated file ends the response early");
            // The zeros read beyond the new end are not sent.
            let whole_pages = left / 4096 * 4096;
            let known = cut.got.len().min(whole_pages.max(1 << 10));
            assert!(cut.got[..known] == bytes[..known]);
            assert_eq!(connect(addr, &client).await.get("/fine").await, (200, b"fine".to_vec()));
        }
    });
}

#[test]
fn a_kept_file_truncated_before_it_is_encrypted_is_no_response() {
    on_both(async || {
        for by in [By::Ours, By::Theirs] {
            let (dir, _) = tree();
            let (server, client) = configs();
            let addr = serve(&dir, server, by).await;
            let mut victim = connect(addr, &client).await;
            assert_eq!(victim.get("/kept").await.0, 200);
            victim.ask("/kept?cut=0").await;
            if victim.try_head().await.is_ok() {
                victim.body(KEPT).await.map(|got| got.len()).expect_err("the truncated file ends the response early");
            }
            assert_eq!(connect(addr, &client).await.get("/fine").await, (200, b"fine".to_vec()));
        }
    });
}
