//! Uploads by real clients: hyper over HTTP/1.1, HTTP/2 and TLS, and curl.

use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::body::{Save, save};
use millstream::fs::Durability;
use millstream::net::{Connector, TcpListener};
use millstream::server::tls::Tls;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{JOB, answer, hex, holds, limits, only, start};
use testkit::http::on_both;
use testkit::serving::serve;
use testkit::{noise, skip};

type AnyBody = UnsyncBoxBody<Bytes, Infallible>;

/// A body of known length, or of pieces of `piece` bytes and unknown length.
fn body(bytes: &Bytes, piece: Option<usize>) -> AnyBody {
    match piece {
        None => UnsyncBoxBody::new(Full::new(bytes.clone())),
        Some(piece) => {
            let count = bytes.len().div_ceil(piece);
            let bytes = bytes.clone();
            let piece = move |n| bytes.slice(n * piece..bytes.len().min((n + 1) * piece));
            let frames = (0..count).map(move |n| Ok(Frame::data(piece(n))));
            UnsyncBoxBody::new(StreamBody::new(stream::iter(frames)))
        }
    }
}

fn put(path: &str, body: AnyBody) -> Request<AnyBody> {
    let uri = format!("https://mill{path}");
    Request::put(uri).header(header::HOST, "mill").body(body).unwrap()
}

enum Sender {
    One(hyper::client::conn::http1::SendRequest<AnyBody>),
    Two(hyper::client::conn::http2::SendRequest<AnyBody>),
}

impl Sender {
    async fn over<S>(io: S, two: bool) -> Self
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        if two {
            let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io));
            let (sender, connection) = shake.await.unwrap();
            tokio::spawn(connection);
            return Self::Two(sender);
        }
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await.unwrap();
        tokio::spawn(connection);
        Self::One(sender)
    }

    async fn send(&mut self, request: Request<AnyBody>) -> (u16, String) {
        let response = match self {
            Self::One(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await
            }
        };
        let response = response.unwrap();
        let status = response.status().as_u16();
        (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }
}

/// Uploads bodies around all boundaries, of known and of unknown length.
async fn upload_all(sender: &mut Sender, dir: &Path) {
    for len in [0, 1, 1000, 64 << 10, JOB - 1, JOB, JOB + 1, 3 * JOB + 7, 5 << 20] {
        let bytes = Bytes::from(noise(len));
        for piece in [None, Some(100_000), Some(16 << 10), Some(777)] {
            if piece.is_some_and(|piece| len / piece > 5000) {
                continue;
            }
            let (status, text) = sender.send(put("/upload", body(&bytes, piece))).await;
            assert_eq!((status, text), (200, format!("{len} {len} {} false", hex(&bytes))), "{len} by {piece:?}");
            holds(&dir.join("upload"), &bytes);
            only(dir, &["upload"]).await;
        }
    }
}

#[test]
fn bodies_of_every_length_arrive_over_http_1_and_2() {
    on_both(|| async {
        for two in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let addr = start(dir.path()).await;
            let mut sender = Sender::over(TcpStream::connect(addr).await.unwrap(), two).await;
            upload_all(&mut sender, dir.path()).await;
        }
    });
}

#[test]
fn bodies_of_every_length_arrive_over_tls() {
    on_both(|| async {
        let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
        for two in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let to = dir.path().to_owned();
            let service = tower::service_fn(move |request| {
                let answer = answer(to.clone(), request);
                async { Ok::<_, Infallible>(answer.await) }
            });
            tokio::spawn(serve(listener, service).limits(limits()).tls(tls).into_future());
            let mut config = testkit::tls::client([made.cert.der().clone()]).with_no_client_auth();
            config.alpn_protocols = vec![if two { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
            let connector = TlsConnector::from(Arc::new(config));
            let tcp = TcpStream::connect(addr).await.unwrap();
            let io = connector.connect(ServerName::try_from("mill").unwrap(), tcp).await.unwrap();
            upload_all(&mut Sender::over(io, two).await, dir.path()).await;
        }
    });
}

#[test]
fn a_hundred_at_once_are_told_apart() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let addr = start(dir.path()).await;
        let all = Bytes::from(noise(3_000_000));
        let part = |n: usize| all.slice(n..n + n * 9973 + 1_000_000 * (n % 3));
        let uploads = (0..100usize).map(|n| async move {
            let bytes = part(n);
            let mut sender = Sender::over(TcpStream::connect(addr).await.unwrap(), n % 2 == 0).await;
            let piece = (n % 4 > 1).then_some(50_000);
            let (status, text) = sender.send(put(&format!("/{n}"), body(&bytes, piece))).await;
            assert_eq!((status, text), (200, format!("{0} {0} {1} false", bytes.len(), hex(&bytes))));
            bytes
        });
        let all = futures_util::future::join_all(uploads).await;
        for (n, bytes) in all.iter().enumerate() {
            holds(&dir.path().join(n.to_string()), bytes);
        }
        let mut names: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        names.sort();
        only(dir.path(), &names.iter().map(|name| &**name).collect::<Vec<_>>()).await;
    });
}

#[test]
fn curl_uploads_with_and_without_a_length() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let source = tempfile::NamedTempFile::new().unwrap();
        let bytes = noise(3 << 20);
        std::fs::write(source.path(), &bytes).unwrap();
        let addr = start(dir.path()).await;
        let digest = hex(&bytes);
        for options in [
            vec!["-T", source.path().to_str().unwrap()],
            vec!["-H", "Transfer-Encoding: chunked", "-T", source.path().to_str().unwrap()],
            vec!["--http2-prior-knowledge", "-T", source.path().to_str().unwrap()],
            vec!["-H", "Expect: 100-continue", "-T", source.path().to_str().unwrap()],
        ] {
            let url = format!("http://{addr}/upload");
            let mut curl = tokio::process::Command::new("curl");
            curl.args(["-sS", "--max-time", "60"]).args(&options).arg(url).stdin(Stdio::null());
            let Ok(output) = curl.output().await else { return skip("curl", "is not installed") };
            assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text, format!("{0} {0} {digest} false", bytes.len()), "{options:?}");
            holds(&dir.path().join("upload"), &bytes);
            std::fs::remove_file(dir.path().join("upload")).unwrap();
        }
    });
}

/// The body of a response that a client receives is saved in the same way.
#[test]
fn a_client_saves_what_it_downloads() {
    on_both(|| async {
        let (dir, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let bytes = noise(2 << 20);
        std::fs::write(served.path().join("file"), &bytes).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, millstream::files::Files::new(served.path()).unwrap()).into_future());
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(Connector::new());
        let response = client.get(format!("http://{addr}/file").parse().unwrap()).await.unwrap();
        let path = dir.path().join("download");
        let saved = save(response.into_body(), &path).await.unwrap();
        assert_eq!((saved.len, saved.file_len, &saved.path), (bytes.len() as u64, bytes.len() as u64, &path));
        holds(&path, &bytes);
    });
}

#[test]
fn progress_ends_at_the_whole() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        for (len, piece) in [(0, None), (1000, None), (5 << 20, None), (5 << 20, Some(50_000))] {
            let (tell, told) = std::sync::mpsc::channel();
            let save = Save::new(dir.path().join("file")).durability(Durability::None);
            let save = save.on_progress(move |done, all| tell.send((done, all)).unwrap());
            save.run(body(&Bytes::from(noise(len)), piece)).await.unwrap();
            let told: Vec<_> = told.into_iter().collect();
            let all = piece.is_none().then_some(len as u64);
            assert!(told.iter().all(|&(_, total)| total == all), "{told:?}");
            assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0), "{told:?}");
            assert_eq!(told.last().unwrap().0, len as u64);
            assert!(piece.is_none() || told.len() > 5, "{told:?}");
        }
    });
}
