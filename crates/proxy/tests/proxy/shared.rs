//! Upstreams of HTTP/2, frame by frame (RFC 9113).

use std::sync::Mutex;

use http_body_util::Empty;

use super::*;

const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
/// In settings.
const ACK: u8 = 1;

const REFUSED_STREAM: u8 = 7;

/// `:status: 200` and `content-length: 0`, by HPACK.
pub(super) const EMPTY: &[u8] = &[0x88, 0x0f, 13, 1, b'0'];

/// The upstream's end of a connection.
pub(super) struct Frames {
    stream: TcpStream,
    /// Data of the requests, in the order of arrival.
    data: Vec<u8>,
    /// What a response may send before the proxy reads it.
    window: u32,
}

impl Frames {
    /// Without settings, behind the preface of the proxy.
    pub(super) async fn silent(mut stream: TcpStream) -> Self {
        stream.read_exact(&mut [0; 24]).await.unwrap();
        Self { stream, data: Vec::new(), window: 0 }
    }

    /// With windows of 1 MiB, for each stream and for all.
    pub(super) async fn begin(stream: TcpStream) -> Self {
        let mut this = Self::silent(stream).await;
        this.send(SETTINGS, 0, 0, &[0, 4, 0, 16, 0, 0]).await;
        this.send(WINDOW_UPDATE, 0, 0, &[0, 16, 0, 0]).await;
        this
    }

    /// Sends bytes. The proxy may have left.
    pub(super) async fn send_all(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    async fn send(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        self.send_all(&frame(kind, flags, id, payload)).await;
    }

    /// Returns the kind and the stream of the next frame that is one of a stream; `None` at the end.
    async fn next(&mut self) -> Option<(u8, u32)> {
        self.read().await.map(|(kind, _, id)| (kind, id))
    }

    /// Returns the kind, the flags and the stream.
    async fn read(&mut self) -> Option<(u8, u8, u32)> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, flags, id @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            if kind == SETTINGS && flags & ACK == 0 {
                let window = payload.chunks(6).find(|entry| entry[..2] == [0, 4]).expect("a window");
                self.window = u32::from_be_bytes(window[2..].try_into().unwrap());
            }
            if kind == DATA {
                self.data.append(&mut payload);
            }
            match (kind, u32::from_be_bytes(id)) {
                (SETTINGS, _) if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
                (DATA | HEADERS | RST_STREAM, id) => return Some((kind, flags, id)),
                _ => {}
            }
        }
    }

    /// Returns the stream of the next request that is complete, and its body, if no other has one; `None` at the end.
    pub(super) async fn request(&mut self) -> Option<(u32, Vec<u8>)> {
        loop {
            match self.read().await? {
                (DATA | HEADERS, flags, id) if flags & END_STREAM != 0 => {
                    return Some((id, std::mem::take(&mut self.data)));
                }
                _ => {}
            }
        }
    }

    /// Says that no request was processed behind this stream.
    async fn go_away(&mut self, last: u32) {
        self.send(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()).await;
    }

    async fn refuse(&mut self, id: u32) {
        self.send(RST_STREAM, 0, id, &[0, 0, 0, REFUSED_STREAM]).await;
    }

    pub(super) async fn answer(&mut self, id: u32) {
        self.send(HEADERS, END_STREAM | END_HEADERS, id, EMPTY).await;
    }
}

pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
}

/// Sends a request with a body, and returns the status of its response.
pub(super) async fn ask(addr: SocketAddr, method: &str, body: &[u8]) -> u16 {
    let mut client = Raw::connect(addr).await;
    client.send(format!("{method} / HTTP/1.1\r\nHost: mill\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    client.send(body).await;
    client.head().await.status
}

/// Starts an upstream that answers all requests but the second of its first connection. Returns the bodies of those that it
/// answers.
async fn refusing(by: u8) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let connections = AtomicUsize::new(0);
    let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let all = Arc::clone(&bodies);
    let addr = raw_upstream(move |stream| {
        let is_first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        let all = Arc::clone(&all);
        async move {
            let mut frames = Frames::begin(stream).await;
            let mut last = 0;
            while let Some((id, body)) = frames.request().await {
                match is_first && last == 1 {
                    true if by == GOAWAY => frames.go_away(1).await,
                    true => frames.refuse(id).await,
                    false => {
                        all.lock().unwrap().push(body);
                        frames.answer(id).await;
                    }
                }
                last = id;
            }
        }
    })
    .await;
    (addr, bodies)
}

#[test]
fn a_request_that_was_refused_is_sent_again_with_its_body() {
    on_both(async || {
        for by in [RST_STREAM, GOAWAY] {
            for (method, len, expected) in
                [("GET", 0, 200), ("POST", 0, 200), ("POST", 5, 200), ("POST", 60_000, 200), ("POST", 100_000, 502)]
            {
                let (upstream, bodies) = refusing(by).await;
                let addr = proxy(plan(upstream, true)).await;
                let body = noise(len);
                assert_eq!(ask(addr, "GET", b"").await, 200);
                assert_eq!(ask(addr, method, &body).await, expected, "{method} of {len} bytes, frame {by}");
                assert_eq!(ask(addr, "GET", b"").await, 200);
                let mut all = vec![Vec::new(), body, Vec::new()];
                if expected != 200 {
                    all.remove(1);
                }
                assert!(*bodies.lock().unwrap() == all, "{method} of {len} bytes, frame {by}");
            }
        }
    });
}

#[test]
fn an_upstream_that_refuses_always_is_asked_a_few_times() {
    on_both(async || {
        for (by, expected) in [(RST_STREAM, 5), (GOAWAY, 17)] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let upstream = raw_upstream(move |stream| {
                let asked = Arc::clone(&count);
                async move {
                    let mut frames = Frames::begin(stream).await;
                    while let Some((id, _)) = frames.request().await {
                        asked.fetch_add(1, Ordering::Relaxed);
                        if by == GOAWAY { frames.go_away(0).await } else { frames.refuse(id).await }
                    }
                }
            })
            .await;
            let addr = proxy(plan(upstream, true)).await;
            assert_eq!(ask(addr, "POST", b"hello").await, 502);
            assert_eq!(asked.load(Ordering::Relaxed), expected, "frame {by}");
        }
    });
}

#[test]
fn a_request_that_may_have_been_processed_is_not_sent_again() {
    on_both(async || {
        // The second request gets no answer, and its connection ends: by the upstream, or by the proxy for a frame of data
        // that belongs to no stream.
        for is_valid in [true, false] {
            let asked = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&asked);
            let upstream = raw_upstream(move |stream| {
                let asked = Arc::clone(&count);
                async move {
                    let mut frames = Frames::begin(stream).await;
                    while let Some((id, _)) = frames.request().await {
                        match asked.fetch_add(1, Ordering::Relaxed) % 2 {
                            0 => frames.answer(id).await,
                            _ if is_valid => {
                                frames.go_away(id).await;
                                return;
                            }
                            _ => frames.send(DATA, 0, 0, b"x").await,
                        }
                    }
                }
            })
            .await;
            let addr = proxy(plan(upstream, true)).await;
            for (method, expected, sent) in [("POST", 502, 2), ("PUT", 200, 3)] {
                asked.store(0, Ordering::Relaxed);
                assert_eq!(ask(addr, "GET", b"").await, 200);
                assert_eq!(ask(addr, method, b"hello").await, expected, "{method}, valid: {is_valid}");
                assert_eq!(asked.load(Ordering::Relaxed), sent, "{method}, valid: {is_valid}");
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
            let mut proxy = plan(start(mirror).await, upstream_h2).build().unwrap();
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
                let (status, seen) = timeout(HANGS, asked).await.expect("the upstream waits for a body");
                let seen = String::from_utf8(seen).unwrap();
                assert!(status == 200 && seen.contains("\"content-length\": \"0\""), "{status} {seen}");
            }
        }
    });
}

#[test]
fn few_responses_have_wide_windows_and_further_ones_narrow_ones() {
    on_both(async || {
        let windows = Arc::<Mutex<Vec<u32>>>::default();
        let of_requests = Arc::clone(&windows);
        let addr = raw_upstream(move |stream| {
            let windows = Arc::clone(&of_requests);
            async move {
                let mut frames = Frames::begin(stream).await;
                while let Some((id, _)) = frames.request().await {
                    windows.lock().unwrap().push(frames.window);
                    // `:status: 200`, and the body does not end.
                    frames.send(HEADERS, END_HEADERS, id, &[0x88]).await;
                }
            }
        })
        .await;
        let proxy = proxy(plan(addr, true)).await;
        let next = async || {
            let mut client = Raw::connect(proxy).await;
            client.ask("/").await;
            assert_eq!(client.head().await.status, 200);
            (client, windows.lock().unwrap().last().copied())
        };
        let mut clients = Vec::new();
        for _ in 0..64 {
            let (client, window) = next().await;
            assert_eq!(window, Some(4 << 20));
            clients.push(client);
        }
        let (_narrow, window) = next().await;
        assert_eq!(window, Some(64 << 10));
        // A client that leaves frees the place of its response.
        clients.pop();
        let freed = async {
            while next().await.1 != Some(4 << 20) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HANGS, freed).await.expect("a wide window again");
    });
}
