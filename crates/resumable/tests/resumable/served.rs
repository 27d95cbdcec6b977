//! Streams behind `server::serve`: HTTP/1, HTTP/2 and TLS, plain and compressed, with a reload of the page in between.

use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::tls::Tls;
use millstream::server::{self, RequestBody};
use millstream_resumable::{StreamEnd, StreamHandle, Streams};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Tell, started};
use testkit::HANGS;
use testkit::http::{h1, h1_over, h2, h2_over, on_both, request};
use testkit::parse::{Parser, Seen};

/// How a reader is connected: over TLS, and by HTTP/2.
const WAYS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

struct Site {
    plain: SocketAddr,
    secure: SocketAddr,
    config: ClientConfig,
}

impl Site {
    async fn start(streams: &Streams) -> Self {
        let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
        let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
        let config = testkit::tls::client([made.cert.into()]).with_no_client_auth();
        let service = || {
            let streams = streams.clone();
            tower::service_fn(move |request: Request<RequestBody>| {
                let answer = streams.attach(&request, request.uri().path(), "alice");
                async { Ok::<_, Infallible>(answer) }
            })
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = listener.local_addr().unwrap();
        tokio::spawn(server::serve(listener, service()).into_future());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = listener.local_addr().unwrap();
        tokio::spawn(server::serve(listener, service()).tls(tls).into_future());
        Self { plain, secure, config }
    }

    async fn get(&self, (tls, two): (bool, bool), gzip: bool, path: &str, last: Option<&str>) -> Response<Incoming> {
        let mut request = request(path);
        if two {
            *request.uri_mut() = format!("http://mill{path}").parse().unwrap();
        }
        if gzip {
            request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        }
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        let response = match (tls, two) {
            (false, false) => h1(self.plain).await.send_request(request).await,
            (false, true) => h2(self.plain).await.send_request(request).await,
            (true, false) => h1_over(self.shake("http/1.1").await).await.send_request(request).await,
            (true, true) => h2_over(self.shake("h2").await).await.send_request(request).await,
        };
        response.unwrap()
    }

    async fn shake(&self, alpn: &str) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![alpn.into()];
        let stream = tokio::net::TcpStream::connect(self.secure).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("mill").unwrap(), stream).await.unwrap()
    }
}

/// Reads events until there are `enough`.
async fn some(answer: &mut Response<Incoming>, parser: &mut Parser, enough: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    while seen.len() < enough {
        let frame = timeout(HANGS, answer.frame()).await.expect("a frame in time").expect("no end").unwrap();
        seen.extend(parser.feed(&frame.into_data().unwrap()));
    }
    seen
}

fn decoded(stream: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(stream).read_to_end(&mut text).expect("a whole stream");
    text
}

async fn rest(answer: Response<Incoming>, gzip: bool) -> Vec<Seen> {
    let coding = answer.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
    assert_eq!(coding, gzip.then_some("gzip"));
    let mut bytes = timeout(HANGS, answer.into_body().collect()).await.unwrap().unwrap().to_bytes().to_vec();
    if gzip {
        bytes = decoded(&bytes);
    }
    Parser::default().feed(&bytes)
}

fn tell(tell: &Tell, from: usize, to: usize) {
    (from..to).for_each(|n| tell.send(format!("{n} {}", "x".repeat(n % 50))));
}

async fn until_unread(stream: &StreamHandle) {
    while format!("{stream:?}").contains("is_read: true") {
        sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn an_answer_survives_reloads_over_every_protocol() {
    on_both(async || {
        let streams = Streams::builder().gzip(6).build();
        let site = Site::start(&streams).await;
        for (n, way) in WAYS.into_iter().enumerate() {
            let path = format!("/{n}");
            let (stream, producer) = started(&streams, &path);
            tell(&producer, 0, 300);
            let mut answer = site.get(way, false, &path, None).await;
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()["content-type"]),
                (200, &"text/event-stream".parse().unwrap())
            );
            let mut parser = Parser::default();
            let mut seen = some(&mut answer, &mut parser, 300).await;
            // New events, one by one, which the hub writes over HTTP/1.
            for n in 300..320 {
                tell(&producer, n, n + 1);
                seen.extend(some(&mut answer, &mut parser, 1).await);
            }
            // The page is reloaded.
            drop(answer);
            until_unread(&stream).await;
            tell(&producer, 320, 700);
            assert_eq!(stream.end(), None);
            let compressed = site.get(way, true, &path, None);
            let (answer, compressed) = tokio::join!(site.get(way, false, &path, Some(&seen[319].id)), compressed);
            let ends = async {
                tell(&producer, 700, 800);
                drop(producer);
            };
            let (more, again, ()) = tokio::join!(rest(answer, false), rest(compressed, true), ends);
            seen.extend(more);
            assert!(
                seen.iter().map(|seen| &*seen.data).eq((0..800).map(|n| format!("{n} {}", "x".repeat(n % 50)))),
                "{way:?}"
            );
            assert!(again == seen, "{way:?}");
            // After the end.
            for gzip in [false, true] {
                assert!(rest(site.get(way, gzip, &path, None).await, gzip).await == seen);
                assert!(rest(site.get(way, gzip, &path, Some(&seen[600].id)).await, gzip).await == seen[601..]);
                let done = site.get(way, gzip, &path, Some(&seen[799].id)).await;
                assert_eq!((done.status().as_u16(), done.headers().get("content-encoding")), (204, None));
            }
            assert_eq!(site.get(way, false, "/unknown", None).await.status(), 404);
            assert_eq!(stream.ended().await, StreamEnd::Complete);
            until_unread(&stream).await;
        }
    });
}
