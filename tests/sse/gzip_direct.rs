//! Events in gzip form over our server and others: written by the hub or polled, whole for every reader.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::RequestBody;
use millstream::server::tls::Tls;
use millstream::sse::{Event, Hub, LagPolicy};
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::gzip::{builder, by_python, whole};
use crate::parse::{Parser, Seen};
use crate::served::{served, until};
use testkit::http::{Raw, h1, h1_over, h2, h2_over, on_both, request};
use testkit::{HANGS, noise, skip};

/// How a reader is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The hub writes to the connection, as to one with TLS.
    One,
    Two,
    Tls,
    TlsTwo,
    /// A listener of tokio.
    Tokio,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [Self::One, Self::Two, Self::Tls, Self::TlsTwo, Self::Tokio];
}

/// Servers of one hub.
pub(crate) struct Servers {
    plain: SocketAddr,
    secure: SocketAddr,
    tokio: SocketAddr,
    config: ClientConfig,
    drain: watch::Sender<bool>,
}

impl Servers {
    pub(crate) async fn start(hub: &Hub) -> Self {
        let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
        let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
        let config = testkit::tls::client([made.cert.into()]).with_no_client_auth();
        let service = || {
            let hub = hub.clone();
            tower::service_fn(move |request: Request<RequestBody>| {
                let answer = hub.subscribe(&request);
                async { Ok::<_, Infallible>(answer) }
            })
        };
        let (drain, _) = watch::channel(false);
        let drains = || {
            let mut drains = drain.subscribe();
            async move {
                if drains.wait_for(|&drains| drains).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = listener.local_addr().unwrap();
        tokio::spawn(millstream::server::serve(listener, service()).tls(tls).drain(drains(), HANGS));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        SockRef::from(&listener).set_send_buffer_size(4096).unwrap();
        let plain = listener.local_addr().unwrap();
        tokio::spawn(millstream::server::serve(listener, service()).drain(drains(), HANGS));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tokio = listener.local_addr().unwrap();
        tokio::spawn(millstream::server::serve(listener, service()).drain(drains(), HANGS));
        Self { plain, secure, tokio, config, drain }
    }

    /// Drains all of them.
    pub(crate) fn drain(&self) {
        self.drain.send_replace(true);
    }

    pub(crate) async fn subscribe(&self, way: Way, gzip: bool, last: Option<&str>) -> Reader {
        let mut request = request("/");
        if way == Way::Two || way == Way::TlsTwo {
            *request.uri_mut() = "http://mill/".parse().unwrap();
        }
        if gzip {
            request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        }
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        let response = match way {
            Way::One => h1(self.plain).await.send_request(request).await,
            Way::Two => h2(self.plain).await.send_request(request).await,
            Way::Tokio => h1(self.tokio).await.send_request(request).await,
            Way::Tls => h1_over(self.shake("http/1.1").await).await.send_request(request).await,
            Way::TlsTwo => h2_over(self.shake("h2").await).await.send_request(request).await,
        };
        Reader::new(response.unwrap(), gzip)
    }

    async fn shake(&self, alpn: &str) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![alpn.into()];
        let stream = tokio::net::TcpStream::connect(self.secure).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("mill").unwrap(), stream).await.unwrap()
    }
}

pub(crate) struct Reader {
    response: Response<Incoming>,
    gzip: bool,
    stream: Vec<u8>,
    decoder: Decoder,
    parser: Parser,
}

/// Decodes what it can now.
#[derive(Debug)]
struct Decoder {
    decoder: flate2::write::GzDecoder<Vec<u8>>,
    taken: usize,
}

impl Decoder {
    fn new() -> Self {
        Self { decoder: flate2::write::GzDecoder::new(Vec::new()), taken: 0 }
    }

    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        use std::io::Write;
        self.decoder.write_all(bytes).unwrap();
        self.decoder.flush().unwrap();
        let text = self.decoder.get_ref()[self.taken..].to_vec();
        self.taken += text.len();
        text
    }
}

impl Reader {
    fn new(response: Response<Incoming>, gzip: bool) -> Self {
        let coding = response.headers().get("content-encoding").map(|coding| coding.to_str().unwrap());
        assert_eq!(coding, gzip.then_some("gzip"));
        Self { response, gzip, stream: Vec::new(), decoder: Decoder::new(), parser: Parser::default() }
    }

    async fn frame(&mut self) -> Option<Vec<Seen>> {
        let frame = timeout(HANGS, self.response.frame()).await.expect("a frame in time")?.unwrap();
        let bytes = frame.into_data().unwrap();
        self.stream.extend_from_slice(&bytes);
        let text = if self.gzip { self.decoder.feed(&bytes) } else { bytes.to_vec() };
        Some(self.parser.feed(&text))
    }

    /// Reads until an event has this data.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        while seen.last().is_none_or(|seen| seen != last) {
            seen.extend(self.frame().await.expect("no end").into_iter().map(|seen| seen.data));
        }
        seen
    }

    /// Reads to the end, and returns the whole text.
    pub(crate) async fn end(mut self) -> (Vec<u8>, Vec<u8>) {
        while self.frame().await.is_some() {}
        let text = if self.gzip { whole(&self.stream) } else { self.stream.clone() };
        (self.stream, text)
    }
}

fn send(hub: &Hub, data: impl ToString) -> String {
    hub.send(Event::new().data(data.to_string())).unwrap().to_string()
}

#[test]
fn compressed_and_plain_readers_of_every_kind_get_the_same() {
    on_both(async || {
        let hub = builder().build();
        let servers = Servers::start(&hub).await;
        let early = send(&hub, "early");
        let mut readers = Vec::new();
        for way in Way::ALL {
            for gzip in [false, true] {
                for last in [None, Some(&*early)] {
                    readers.push((way, servers.subscribe(way, gzip, last).await));
                }
            }
        }
        until(&hub, |stats| stats.direct == 8).await;
        let mut late = Vec::new();
        for round in 0..30 {
            // Some turns have several events.
            for n in 0..round % 4 {
                send(&hub, format!("{round}/{n}"));
            }
            send(&hub, round);
            for (way, reader) in &mut readers {
                let seen = reader.until(&round.to_string()).await;
                assert_eq!(seen.len(), round % 4 + 1, "{way:?}");
            }
            if round == 15 {
                for way in Way::ALL {
                    late.push((way, servers.subscribe(way, true, Some(&early)).await));
                }
            }
        }
        for (way, reader) in &mut late {
            assert_eq!(reader.until("29").await.len(), 30 + 7 * 6 + 1, "{way:?}");
        }
        let stats = hub.stats();
        assert_eq!((stats.compressed, stats.gaps), (stats.sent - 1, 0), "each event once, but the early one");
        until(&hub, |stats| stats.direct == 10).await;

        hub.close();
        let (mut streams, mut texts) = (Vec::new(), Vec::new());
        for (way, reader) in readers.into_iter().chain(late) {
            let (is_gzip, (stream, text)) = (reader.gzip, reader.end().await);
            assert!(text.ends_with(b"id: ") || text.ends_with(b"\n\nretry: 1000\n\n"), "{way:?}");
            if is_gzip {
                streams.push(stream);
            }
            texts.push((is_gzip, text));
        }
        assert!(texts.iter().all(|(_, text)| *text == texts[0].1));
        if let Some(decoded) = by_python(&streams) {
            assert!(decoded.iter().all(|text| *text == texts[0].1));
        }
    });
}

#[test]
fn readers_that_the_hub_writes_to_share_the_compressed_event() {
    on_both(async || {
        const READERS: usize = 100;
        let hub = builder().build();
        let servers = Servers::start(&hub).await;
        let mut readers = Vec::new();
        for n in 0..READERS {
            readers.push(servers.subscribe(Way::One, n % 4 != 0, None).await);
        }
        until(&hub, |stats| stats.direct == READERS).await;
        for n in 0..50 {
            send(&hub, n);
        }
        for reader in &mut readers {
            assert_eq!(reader.until("49").await.len(), 50);
        }
        let stats = hub.stats();
        assert_eq!((stats.direct, stats.sent, stats.compressed), (READERS, 50, 50));
        assert_eq!(stats.delivered, 50 * READERS as u64);
        hub.close();
        for reader in readers {
            reader.end().await;
        }
    });
}

#[test]
fn comments_keep_compressed_readers_alive() {
    on_both(async || {
        let hub = builder().keep_alive(Duration::from_millis(20)).build();
        let servers = Servers::start(&hub).await;
        for way in Way::ALL {
            let mut reader = servers.subscribe(way, true, None).await;
            while reader.parser.comments < 3 {
                assert_eq!(reader.frame().await, Some(vec![]), "{way:?}");
            }
            send(&hub, "x");
            reader.until("x").await;
            drop(reader);
        }
        let mut reader = servers.subscribe(Way::One, true, None).await;
        until(&hub, |stats| stats.direct == 1).await;
        let comments = reader.parser.comments;
        while reader.parser.comments < comments + 3 {
            reader.frame().await.unwrap();
        }
        hub.close();
        reader.end().await;
    });
}

/// Data that does not compress much.
fn long(n: usize) -> String {
    let noise = noise(20_000 + n);
    format!("{n} {}", noise[n..].iter().map(|byte| char::from(byte % 94 + 33)).collect::<String>())
}

#[test]
fn slow_compressed_readers_are_treated_like_others() {
    on_both(async || {
        for slow in [LagPolicy::DropOldest, LagPolicy::Latest, LagPolicy::Disconnect, LagPolicy::Block] {
            let hub = builder().lag_policy(slow).queue(20).patience(Duration::from_secs(3600)).build();
            let addr = served(&hub).await;
            let mut client = Raw::connect_narrow(addr).await;
            // HTTP/1.0 has no chunks.
            client.send("GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").await;
            assert_eq!(client.head().await.field("content-encoding"), Some("gzip"));
            until(&hub, |stats| stats.direct == 1).await;
            let (sender, sending) = (hub.clone(), 100);
            let task = tokio::spawn(async move {
                for n in 0..sending {
                    sender.send_wait(Event::new().data(long(n))).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            if slow != LagPolicy::Block {
                task.await.unwrap();
            } else {
                until(&hub, |stats| stats.sent - stats.delivered == 20).await;
                tokio::spawn(task);
            }
            let (mut decoder, mut parser, mut stream) = (Decoder::new(), Parser::default(), Vec::new());
            let (mut bytes, mut next, mut missed) = (client.buffered(), 0, 0);
            loop {
                stream.extend_from_slice(&bytes);
                for seen in parser.feed(&decoder.feed(&bytes)) {
                    if seen.name == "gap" {
                        let gap = seen.missed().unwrap() as usize;
                        (next, missed) = (next + gap, missed + gap);
                        continue;
                    }
                    assert!(seen.data == long(next), "{slow:?}: event {next}");
                    next += 1;
                }
                if next == sending && !hub.stats().eq(&Default::default()) {
                    hub.close();
                }
                bytes.resize(64 << 10, 0);
                let n = timeout(HANGS, client.io.read(&mut bytes)).await.expect("bytes in time").unwrap();
                bytes.truncate(n);
                if n == 0 {
                    break;
                }
            }
            whole(&stream);
            assert!(parser.has_retry(), "{slow:?}");
            match slow {
                LagPolicy::Disconnect => assert!(next < sending && missed == 0),
                LagPolicy::Block => assert_eq!((next, missed), (sending, 0)),
                _ => assert!(next == sending && missed > 0 && missed as u64 == hub.stats().dropped, "{slow:?}"),
            }
        }
    });
}

#[test]
fn a_hub_that_writes_past_layers_does_so_only_to_streams_in_its_own_coding() {
    on_both(async || {
        for (strips, expected) in [(false, 1), (true, 0)] {
            let hub = builder().past_layers(true).build();
            let served = hub.clone();
            let service = tower::service_fn(move |request: Request<RequestBody>| {
                let mut answer = served.subscribe(&request).map(BodyExt::boxed_unsync);
                if strips {
                    answer.headers_mut().remove("content-encoding");
                }
                async { Ok::<_, Infallible>(answer) }
            });
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(millstream::server::serve(listener, service).into_future());
            let mut client = h1(addr).await;
            let mut request: Request<Empty<Bytes>> = request("/");
            request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
            let mut response = client.send_request(request).await.unwrap();
            // The head of the stream is no event, which layers must have seen.
            let (mut decoder, mut parser) = (Decoder::new(), Parser::default());
            let head = response.frame().await.unwrap().unwrap().into_data().unwrap();
            decoder.feed(&head);
            assert_eq!((head.len(), hub.stats().direct), (10, 0));
            for n in 0..10 {
                send(&hub, n);
                let mut seen = Vec::new();
                while seen.is_empty() {
                    let frame = timeout(HANGS, response.frame()).await.unwrap().unwrap().unwrap();
                    seen = parser.feed(&decoder.feed(&frame.into_data().unwrap()));
                }
                assert_eq!(seen[0].data, n.to_string());
                until(&hub, |stats| stats.direct == expected).await;
            }
        }
    });
}

#[test]
fn curl_decodes_a_compressed_hub() {
    on_both(async || {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let hub = builder().build();
            let addr = served(&hub).await;
            let first = send(&hub, "first");
            let mut command = Command::new("curl");
            let url = format!("http://{addr}/?lastEventId={first}");
            command.args(["-sSN", "--compressed", "--max-time", "30", "--noproxy", "*", version, &url]);
            let child = match command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn() {
                Ok(child) => child,
                Err(error) => return skip("curl", error),
            };
            let mut plain = hub.subscribe_from(Some(&first)).unwrap();
            until(&hub, |stats| stats.subscribers == 2).await;
            for n in 0..200 {
                send(&hub, format!("{n} {}", "the mill turns ".repeat(n % 7)));
                tokio::task::yield_now().await;
            }
            hub.close();
            let mut expected = Vec::new();
            while let Some(frame) = plain.frame().await {
                expected.extend_from_slice(&frame.unwrap().into_data().unwrap());
            }
            let output = child.wait_with_output().await.unwrap();
            assert!(output.status.success(), "{}", output.status);
            assert!(output.stdout == expected, "{version}");
            assert_eq!(hub.stats().compressed, 200);
        }
    });
}
