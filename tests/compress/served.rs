//! Compressed responses over our server: HTTP/1.1 and HTTP/2, with and without TLS.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use millstream::middleware::CompressLayer;
use millstream::net::TcpListener;
use millstream::server::RequestBody;
use millstream::server::tls::Tls;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tower::{Layer, service_fn};

use crate::decode::{ALL, Decoder, whole};
use testkit::http::{Answer, H1, H2, boxed, h1, h1_over, h2, h2_over, on_both};
use testkit::{HANGS, noise};

/// Serves `answer` behind the layer.
pub(crate) async fn serve(
    tls: Option<Tls>,
    answer: impl Fn(Request<RequestBody>) -> Answer + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = service_fn(move |request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(answer) }
    });
    let serve = millstream::server::serve(listener, CompressLayer::new().layer(service));
    match tls {
        Some(tls) => drop(tokio::spawn(serve.tls(tls).into_future())),
        None => drop(tokio::spawn(serve.into_future())),
    }
    addr
}

struct Identity {
    tls: Tls,
    der: CertificateDer<'static>,
}

fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
    let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
    Identity { tls, der: made.cert.into() }
}

/// A connection of one of the protocols.
enum Client {
    One(H1),
    Two(H2),
}

impl Client {
    async fn connect(way: Way, addr: SocketAddr, der: &CertificateDer<'static>) -> Self {
        let alpn = match way {
            Way::One => return Self::One(h1(addr).await),
            Way::Two => return Self::Two(h2(addr).await),
            Way::TlsOne => "http/1.1",
            Way::TlsTwo => "h2",
        };
        let mut config = testkit::tls::client([der.clone()]).with_no_client_auth();
        config.alpn_protocols = vec![alpn.into()];
        let stream = TcpStream::connect(addr).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(ServerName::try_from("mill").unwrap(), stream).await.unwrap();
        match way {
            Way::TlsOne => Self::One(h1_over(stream).await),
            _ => Self::Two(h2_over(stream).await),
        }
    }

    async fn get(&mut self, path: &str, accept: &str) -> Response<Incoming> {
        self.ask(Method::GET, path, accept).await
    }

    async fn ask(&mut self, method: Method, path: &str, accept: &str) -> Response<Incoming> {
        // hyper sends trailers over HTTP/1 to clients that accept them.
        let uri = format!("http://mill{path}");
        let request = match self {
            Self::One(_) => Request::get(path).header("host", "mill").header("te", "trailers"),
            Self::Two(_) => Request::get(uri).header("te", "trailers"),
        };
        let request = request.method(method).header(ACCEPT_ENCODING, accept).body(Empty::<Bytes>::new()).unwrap();
        match self {
            Self::One(client) => {
                // The end of a response reaches its reader before the connection is ready for the next request.
                client.ready().await.unwrap();
                client.send_request(request).await.unwrap()
            }
            Self::Two(client) => client.send_request(request).await.unwrap(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    One,
    Two,
    TlsOne,
    TlsTwo,
}

impl Way {
    const ALL: [Self; 4] = [Self::One, Self::Two, Self::TlsOne, Self::TlsTwo];

    fn is_tls(self) -> bool {
        matches!(self, Self::TlsOne | Self::TlsTwo)
    }
}

fn coding(response: &Response<Incoming>) -> Option<&str> {
    response.headers().get(CONTENT_ENCODING).map(|value| value.to_str().unwrap())
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    trailers
}

/// Data of all kinds, and longer than what a connection buffers.
fn pieces() -> Vec<Bytes> {
    let noise = noise(400_000);
    let mut all: Vec<Bytes> = (0..200).map(|n| format!("piece {n} of an answer\n").into()).collect();
    all.extend([Bytes::from(noise), Bytes::new(), Bytes::from(vec![b'x'; 1_000_000])]);
    all
}

/// Gives all pieces with pauses, then trailers, or an error.
fn pieced(fails: bool) -> Answer {
    let mut frames: Vec<io::Result<Frame<Bytes>>> = pieces().into_iter().map(|piece| Ok(Frame::data(piece))).collect();
    frames.push(if fails { Err(io::Error::other("cut")) } else { Ok(Frame::trailers(trailers())) });
    let frames = stream::unfold((frames.into_iter(), 0), async |(mut frames, n)| {
        if n % 3 == 0 {
            tokio::task::yield_now().await;
        }
        Some((frames.next()?, (frames, n + 1)))
    });
    let body = StreamBody::new(Box::pin(frames));
    Response::builder().header("trailer", "x-sum").body(boxed(body)).unwrap()
}

#[test]
fn bytes_trailers_and_errors_arrive() {
    on_both(|| async {
        let Identity { tls, der } = identity();
        let answer = |request: Request<RequestBody>| pieced(request.uri().path() == "/fails");
        let (plain, secure) = (serve(None, answer).await, serve(Some(tls), answer).await);
        let expected = pieces().concat();
        for way in Way::ALL {
            let addr = if way.is_tls() { secure } else { plain };
            for known in ALL {
                let mut client = Client::connect(way, addr, &der).await;
                let response = client.get("/", known.name()).await;
                assert_eq!(coding(&response), Some(known.name()), "{way:?}");
                assert!(!response.headers().contains_key(CONTENT_LENGTH));
                let body = timeout(HANGS, response.into_body().collect()).await.unwrap().unwrap();
                assert_eq!(body.trailers(), Some(&trailers()), "{way:?} {known}");
                assert!(whole(known, &body.to_bytes()).unwrap() == expected, "{way:?} {known}: other bytes");

                // The connection goes on, and a body that fails does not look complete.
                let response = client.get("/fails", known.name()).await;
                let mut decoder = Decoder::of(coding(&response));
                let mut body = response.into_body();
                let error = loop {
                    match timeout(HANGS, body.frame()).await.unwrap() {
                        Some(Ok(frame)) => drop(decoder.feed(&frame.into_data().unwrap())),
                        Some(Err(error)) => break Some(error),
                        None => break None,
                    }
                };
                assert!(error.is_some(), "{way:?} {known}: a failed body has ended");
            }
        }
    });
}

#[test]
fn heads_are_those_of_get() {
    on_both(|| async {
        let Identity { tls, der } = identity();
        let answer = |request: Request<RequestBody>| {
            let body = Full::new(Bytes::from(vec![b'm'; 100_000])).map_err(|never| match never {});
            let answer = Response::builder().header("content-type", "text/plain").header("etag", "\"a\"");
            match *request.method() {
                Method::HEAD => {
                    answer.header(CONTENT_LENGTH, 100_000).body(boxed(Empty::new().map_err(|never| match never {})))
                }
                _ => answer.body(boxed(body)),
            }
            .unwrap()
        };
        let (plain, secure) = (serve(None, answer).await, serve(Some(tls), answer).await);
        for way in Way::ALL {
            let mut client = Client::connect(way, if way.is_tls() { secure } else { plain }, &der).await;
            for accept in ["gzip", "identity"] {
                let mut heads = Vec::new();
                for method in [Method::GET, Method::HEAD, Method::GET] {
                    let (mut parts, body) = client.ask(method, "/", accept).await.into_parts();
                    timeout(HANGS, body.collect()).await.unwrap().unwrap();
                    parts.headers.remove("date");
                    // Framing is of HTTP/1 alone, and has no content to frame in HEAD.
                    parts.headers.remove(TRANSFER_ENCODING);
                    heads.push(parts.headers);
                }
                assert_eq!(heads[0], heads[1], "{way:?} {accept}");
                assert_eq!(heads[0], heads[2], "{way:?} {accept}");
            }
        }
    });
}

/// A body that gives the next token for each permit.
fn tokens(permits: mpsc::Receiver<()>) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    stream::unfold((permits, 0), async |(mut permits, n)| {
        permits.recv().await?;
        Some((Ok(Frame::data(token(n))), (permits, n + 1)))
    })
}

fn token(n: usize) -> Bytes {
    format!("data: {{\"token\": \"mill {n}\"}}\n\n").into()
}

#[test]
fn each_token_is_decoded_before_the_source_gives_the_next() {
    on_both(|| async {
        const TOKENS: usize = 50;
        let Identity { tls, der } = identity();
        let next = Arc::new(Mutex::new(None));
        let answer = {
            let next = Arc::clone(&next);
            move |_: Request<RequestBody>| {
                let permits = next.lock().unwrap().take().expect("one request at a time");
                let body = boxed(StreamBody::new(Box::pin(tokens(permits))));
                Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
            }
        };
        let (plain, secure) = (serve(None, answer.clone()).await, serve(Some(tls), answer).await);
        for way in Way::ALL {
            let addr = if way.is_tls() { secure } else { plain };
            for known in ALL {
                let (permit, permits) = mpsc::channel(1);
                *next.lock().unwrap() = Some(permits);
                let mut client = Client::connect(way, addr, &der).await;
                let response = client.get("/", known.name()).await;
                assert_eq!(coding(&response), Some(known.name()));
                let (mut body, mut decoder, mut expected) = (response.into_body(), Decoder::new(known), Vec::new());
                for n in 0..TOKENS {
                    permit.send(()).await.unwrap();
                    expected.extend_from_slice(&token(n));
                    while decoder.decoded() != expected {
                        let frame = timeout(HANGS, body.frame()).await;
                        let frame = frame.unwrap_or_else(|_| panic!("{way:?} {known}: token {n} is held back"));
                        decoder.feed(&frame.unwrap().unwrap().into_data().unwrap());
                    }
                }
                drop(permit);
                while let Some(frame) = timeout(HANGS, body.frame()).await.unwrap() {
                    decoder.feed(&frame.unwrap().into_data().unwrap());
                }
                assert!(decoder.decoded() == expected);
            }
        }
    });
}
