//! Upstreams of HTTP/2, frame by frame (RFC 9113).

use http_body_util::Empty;

use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// In settings.
const ACK: u8 = 1;

const REFUSED_STREAM: u8 = 7;

/// `:status: 200` and `content-length: 0`, by HPACK.
const EMPTY: &[u8] = &[0x88, 0x0f, 13, 1, b'0'];

/// The upstream's end of a connection.
struct Frames(TcpStream);

impl Frames {
    async fn begin(mut stream: TcpStream) -> Self {
        stream.read_exact(&mut [0; 24]).await.unwrap();
        let mut this = Self(stream);
        this.send(SETTINGS, 0, 0, &[]).await;
        this
    }

    /// Sends a frame. The proxy may have left.
    async fn send(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        let len = (payload.len() as u32).to_be_bytes();
        let head = [&len[1..], &[kind, flags], &id.to_be_bytes()].concat();
        let _ = self.0.write_all(&[&head, payload].concat()).await;
    }

    /// Returns the kind and the stream of the next frame that is one of a stream; `None` at the end.
    async fn next(&mut self) -> Option<(u8, u32)> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, flags, id @ ..] = head;
            self.0.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await.ok()?;
            match (kind, u32::from_be_bytes(id)) {
                (SETTINGS, _) if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
                (DATA | HEADERS | RST_STREAM, id) => return Some((kind, id)),
                _ => {}
            }
        }
    }
}

/// Starts an upstream that answers all requests but the second of its first connection.
async fn refusing(by: u8) -> SocketAddr {
    let connections = AtomicUsize::new(0);
    raw_upstream(move |stream| {
        let is_first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            let mut frames = Frames::begin(stream).await;
            let mut last = 0;
            while let Some((kind, id)) = frames.next().await {
                match (kind, is_first && last == 1) {
                    (HEADERS, true) if by == GOAWAY => frames.send(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]).await,
                    (HEADERS, true) => frames.send(RST_STREAM, 0, id, &[0, 0, 0, REFUSED_STREAM]).await,
                    (HEADERS, false) => frames.send(HEADERS, END_STREAM | END_HEADERS, id, EMPTY).await,
                    _ => {}
                }
                last = id;
            }
        }
    })
    .await
}

#[test]
fn a_request_that_was_refused_is_sent_again() {
    on_both(async || {
        for by in [RST_STREAM, GOAWAY] {
            for (method, expected) in [("GET", 200), ("POST", 502)] {
                let addr = proxy(plan(refusing(by).await, true)).await;
                let mut statuses = Vec::new();
                for method in ["GET", method, "GET"] {
                    let mut client = Raw::connect(addr).await;
                    client.send(format!("{method} / HTTP/1.1\r\nHost: mill\r\nContent-Length: 0\r\n\r\n")).await;
                    statuses.push(client.head().await.status);
                }
                assert_eq!(statuses, [200, expected, 200], "{method}, frame {by}");
            }
        }
    });
}

#[test]
fn a_body_of_a_known_length_ends_when_the_upstream_says_so() {
    on_both(async || {
        for has_trailers in [false, true] {
            let resets = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&resets);
            let upstream = raw_upstream(move |stream| {
                let resets = Arc::clone(&count);
                async move {
                    let mut frames = Frames::begin(stream).await;
                    while let Some((kind, id)) = frames.next().await {
                        if kind == RST_STREAM {
                            resets.fetch_add(1, Ordering::Relaxed);
                        }
                        if kind == HEADERS {
                            frames.send(HEADERS, END_HEADERS, id, &[0x88, 0x0f, 13, 1, b'5']).await;
                            frames.send(DATA, 0, id, b"hello").await;
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            match has_trailers {
                                true => {
                                    let fields = b"\x00\x05x-sum\x012";
                                    frames.send(HEADERS, END_STREAM | END_HEADERS, id, fields).await;
                                }
                                false => frames.send(DATA, END_STREAM, id, &[]).await,
                            }
                        }
                    }
                }
            })
            .await;
            let addr = proxy(plan(upstream, true)).await;
            let mut client = h2(addr).await;
            for _ in 0..2 {
                let answer = client.send_request(request("http://mill/")).await.unwrap();
                assert_eq!(answer.headers()["content-length"], "5");
                let body = answer.into_body().collect().await.unwrap();
                let sum = body.trailers().and_then(|fields| fields.get("x-sum"));
                assert_eq!(sum.is_some(), has_trailers);
                assert_eq!(body.to_bytes(), "hello");
            }
            assert_eq!(resets.load(Ordering::Relaxed), 0, "trailers: {has_trailers}");
        }
    });
}

#[test]
fn an_absolute_target_without_a_path_is_one_of_the_root() {
    on_both(async || {
        let upstream = start(async |request| {
            let target = request.uri().path_and_query().unwrap().as_str().to_owned();
            Response::new(boxed(Full::from(target)))
        })
        .await;
        for upstream_h2 in [false, true] {
            let addr = proxy(plan(upstream, upstream_h2)).await;
            for (asked, expected) in [
                ("GET http://mill", "/"),
                ("GET http://mill#x", "/"),
                ("GET http://mill?x=1", "/?x=1"),
                ("GET http://mill?#x", "/?"),
                ("OPTIONS *", "*"),
                ("OPTIONS http://mill#x", "/"),
            ] {
                let mut client = Raw::connect(addr).await;
                client.send(format!("{asked} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
                let head = client.head().await;
                let target = client.body(head.content_length()).await.unwrap();
                assert_eq!(String::from_utf8(target).unwrap(), expected, "{asked}, HTTP/2: {upstream_h2}");
            }
        }
    });
}

#[test]
fn a_body_that_a_layer_has_read_is_not_announced() {
    on_both(async || {
        for upstream_h2 in [false, true] {
            let mut proxy = plan(start(mirror).await, upstream_h2).build();
            let service = tower::service_fn(move |request: Request<millstream::server::RequestBody>| {
                tower::Service::call(&mut proxy, request.map(|_| Empty::<Bytes>::new()))
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, service).into_future());
            for _ in 0..2 {
                let mut client = Raw::connect(addr).await;
                client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\n\r\nhello").await;
                let asked = async {
                    let head = client.head().await;
                    (head.status, client.body(head.content_length()).await.unwrap())
                };
                let (status, seen) = timeout(SOON, asked).await.expect("the upstream waits for a body");
                let seen = String::from_utf8(seen).unwrap();
                assert!(status == 200 && seen.contains("\"content-length\": \"0\""), "{status} {seen}");
            }
        }
    });
}
