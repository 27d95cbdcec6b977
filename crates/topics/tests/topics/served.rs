//! Topics behind a server: HTTP/1, HTTP/2 and TLS, and a drain.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::net::TcpListener;
use millstream::server::tls::Tls;
use millstream::server::tls::rustls::pki_types::{CertificateDer, ServerName};
use millstream::server::{RequestBody, serve};
use millstream_topics::Topics;
use testkit::events::Reader;
use testkit::http::on_both;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::*;

/// The certificate and the key, and what clients trust.
static IDENTITY: LazyLock<(String, String, CertificateDer<'static>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.into())
});

/// Serves topics until `drain` is set.
async fn start(topics: Topics, tls: bool, drain: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let topics = topics.clone();
        async move { Ok::<_, Infallible>(topics.answer(request).await) }
    });
    let mut server = serve(listener, service);
    if tls {
        server = server.tls(Tls::from_pem(&IDENTITY.0, &IDENTITY.1).unwrap());
    }
    let signal = async move {
        let mut drain = drain;
        drain.wait_for(|&drain| drain).await.map(drop).unwrap_or_default();
    };
    tokio::spawn(server.drain(signal, testkit::HANGS));
    addr
}

/// Sends a request over a connection of its own.
async fn ask(addr: SocketAddr, tls: bool, two: bool, request: Request<Full<bytes::Bytes>>) -> Response<Incoming> {
    let stream = TcpStream::connect(addr).await.unwrap();
    if !tls {
        return ask_over(TokioIo::new(stream), two, request).await;
    }
    let mut config = testkit::tls::client([IDENTITY.2.clone()]).with_no_client_auth();
    config.alpn_protocols = vec![if two { "h2".into() } else { "http/1.1".into() }];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    ask_over(TokioIo::new(stream), two, request).await
}

async fn ask_over<I>(io: I, two: bool, request: Request<Full<bytes::Bytes>>) -> Response<Incoming>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    if two {
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        // The connection lives as long as the response.
        tokio::spawn(async move { sender.ready().await });
        return response;
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

fn request(last: Option<&str>) -> Request<Full<bytes::Bytes>> {
    let mut request = Request::get("http://localhost/?topic=a&topic=b").header("host", "localhost");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    request.body(Full::default()).unwrap()
}

#[test]
fn a_reader_that_reconnects_continues_over_every_protocol() {
    on_both(async || {
        for (tls, two) in [(false, false), (false, true), (true, false), (true, true)] {
            let (topics, [a, b]) = with(Topics::public(), ["a", "b"]);
            let (drain, drains) = watch::channel(false);
            let addr = start(topics.clone(), tls, drains).await;
            let response = ask(addr, tls, two, request(None)).await;
            assert_eq!(
                (response.status().as_u16(), response.headers()["content-type"].as_bytes()),
                (200, &b"text/event-stream"[..])
            );
            let mut reader = Reader::new(response.into_body());
            send(&a, "1");
            let got = reader.next().await;
            assert_eq!((got.data, got.id), ("1".to_owned(), Some(format!("a={},b={}", a.position(), b.position()))));
            let last = reader.last.clone().unwrap();
            drop(reader);
            send(&b, "2");
            let mut reader = Reader::new(ask(addr, tls, two, request(Some(&last))).await.into_body());
            assert_eq!(reader.next().await.data, "2");
            send(&a, "3");
            assert_eq!(reader.next().await.data, "3");

            let body = Full::new(bytes::Bytes::from(r#"{"topics":["b"]}"#));
            let post = Request::post("http://localhost/")
                .header("host", "localhost")
                .header("content-type", "application/json");
            let mut posted = Reader::new(ask(addr, tls, two, post.body(body).unwrap()).await.into_body());
            send(&b, "4");
            assert_eq!((posted.next().await.data, reader.next().await.data), ("4".to_owned(), "4".to_owned()));
            drain.send_replace(true);
            assert_eq!((posted.try_next().await, reader.try_next().await), (None, None), "both end");
            while topics.stats().readers > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!((a.stats().subscribers, b.stats().subscribers), (0, 0));
        }
    });
}

#[test]
fn a_drain_ends_responses_between_two_events_with_one_time_to_come_back() {
    on_both(async || {
        for two in [false, true] {
            let (topics, [a, b]) = with(Topics::public(), ["a", "b"]);
            let (drain, drains) = watch::channel(false);
            let addr = start(topics.clone(), false, drains).await;
            let mut bodies = Vec::new();
            for _ in 0..20 {
                bodies.push(ask(addr, false, two, request(None)).await.into_body());
            }
            for n in 0..10 {
                send(&a, &n.to_string());
                send(&b, &n.to_string());
            }
            drain.send_replace(true);
            for body in bodies {
                let whole = tokio::time::timeout(testkit::HANGS, body.collect()).await.unwrap().unwrap().to_bytes();
                let whole = String::from_utf8(whole.to_vec()).unwrap();
                let (got, end) = events(&whole);
                assert_eq!((end, whole.matches("retry: ").count()), (whole.len(), 1), "{whole}");
                assert!(whole.lines().rev().nth(1).unwrap().starts_with("retry: "), "{whole}");
                assert_eq!(got.iter().filter(|got| !got.data.is_empty()).count(), 20, "{whole}");
            }
        }
    });
}
