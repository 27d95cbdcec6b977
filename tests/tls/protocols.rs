//! Negotiated versions and protocols, and bodies that arrive unchanged.

use millstream::net;
use millstream::server::tls::TlsStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{HandshakeKind, ProtocolVersion};

use super::*;
use testkit::http::{h1_over, h2_over, on_both, request, sha256, whole};

#[test]
fn whole_files_arrive_by_both_versions_of_each_protocol() {
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        for version in [&TLS12, &TLS13] {
            // Without ALPN, the server detects HTTP/2 by its preface.
            for offered in [&["h2", "http/1.1"][..], &["http/1.1"], &["h2"], &[]] {
                let config = client(&[version], offered);
                let stream = connect(server.addr, &config).await;
                let agreed = stream.get_ref().1.alpn_protocol().map(|name| String::from_utf8(name.to_vec()).unwrap());
                assert_eq!(agreed.as_deref(), offered.first().copied());
                let mut sides = vec![agreed.as_deref() == Some("h2")];
                if agreed.is_none() {
                    sides.push(true);
                }
                let mut stream = Some(stream);
                for two in sides {
                    let io = match stream.take() {
                        Some(stream) => stream,
                        None => connect(server.addr, &config).await,
                    };
                    let (mut one, mut other);
                    let ask: &mut dyn AsyncAsk = if two {
                        other = h2_over(io).await;
                        &mut other
                    } else {
                        one = h1_over(io).await;
                        &mut one
                    };
                    let expected = if two { "HTTP/2.0" } else { "HTTP/1.1" };
                    assert_eq!(ask.ask("/version").await, expected.as_bytes());
                    for (path, bytes) in
                        [("/large", &server.bytes[..LARGE]), ("/kept", &server.bytes[..KEPT]), ("/fine", b"fine")]
                    {
                        assert_eq!(sha256(ask.ask(path).await), sha256(bytes), "{path}, {version:?}, {expected}");
                    }
                    assert_eq!(ask.ask("/tokens").await, TOKEN.repeat(TOKENS));
                }
            }
        }
    });
}

trait AsyncAsk: Send {
    fn ask<'a>(&'a mut self, path: &'a str) -> std::pin::Pin<Box<dyn Future<Output = Bytes> + Send + 'a>>;
}

macro_rules! asks {
    ($client:ty) => {
        impl AsyncAsk for $client {
            fn ask<'a>(&'a mut self, path: &'a str) -> std::pin::Pin<Box<dyn Future<Output = Bytes> + Send + 'a>> {
                Box::pin(async move {
                    self.ready().await.unwrap();
                    whole(self.send_request(request(path)).await.unwrap()).await.unwrap()
                })
            }
        }
    };
}
asks!(testkit::http::H1);
asks!(testkit::http::H2);

#[test]
fn a_protocol_that_is_not_spoken_is_refused() {
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let io = TcpStream::connect(server.addr).await.unwrap();
        let refused = shake(&client(BOTH, &["spdy/3"]), io).await.unwrap_err();
        assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
        assert_eq!(get(server.addr, &client(BOTH, &[]), "/fine").await, (200, b"fine".to_vec()));
    });
}

#[test]
fn a_ticket_resumes_a_session_also_after_the_certificate_was_replaced() {
    on_both(async || {
        for version in [&TLS12, &TLS13] {
            let tls = IDENTITIES[0].tls();
            let server = Server::start(tls.clone()).await;
            let config = client(&[version], &["http/1.1"]);
            for (round, kind) in
                [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed].into_iter().enumerate()
            {
                if round == 2 {
                    tls.replace_pem(&IDENTITIES[1].certificate, &IDENTITIES[1].key).unwrap();
                }
                let mut client = Raw::over(connect(server.addr, &config).await);
                // In TLS 1.3, tickets come with the first response.
                assert_eq!(client.get("/fine").await, (200, b"fine".to_vec()));
                assert_eq!(client.io.get_ref().1.handshake_kind(), Some(kind), "{version:?}, round {round}");
            }
        }
    });
}

/// Answers an upgrade request, then echoes one line in reverse.
pub(crate) fn mirror(mut request: Request<RequestBody>) -> Answer {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let parts = upgrade.await.unwrap().downcast::<TlsStream<net::TcpStream>>().unwrap();
        let mut io = parts.io;
        assert!(parts.read_buf.is_empty(), "the client sends nothing before the response");
        assert_eq!(io.alpn(), Some(&b"http/1.1"[..]));
        assert_eq!((io.version(), io.server_name()), (Some(ProtocolVersion::TLSv1_3), Some("mill")));
        assert!(!io.is_resumed() && io.get_ref().peer_addr().unwrap().ip().is_loopback());
        let mut line = [0; 5];
        io.read_exact(&mut line).await.unwrap();
        line.reverse();
        io.write_all(&line).await.unwrap();
        io.shutdown().await.unwrap();
    });
    let answer =
        Response::builder().status(101).header(header::UPGRADE, "mirror").header(header::CONNECTION, "upgrade");
    answer.body(boxed(Full::default())).unwrap()
}

#[test]
fn an_upgrade_gives_the_stream_back_and_its_end_is_said() {
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let mut client = Raw::over(connect(server.addr, &client(&[&TLS13], &["http/1.1"])).await);
        client.send("GET /mirror HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: mirror\r\n\r\n").await;
        assert_eq!(client.head().await.status, 101);
        client.send("hello").await;
        let mut back = client.buffered();
        // Without `close_notify` the read fails.
        client.io.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"olleh");
    });
}

#[test]
fn an_orderly_end_is_said_and_a_torn_file_is_none() {
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let config = client(BOTH, &["http/1.1"]);
        let mut orderly = Raw::over(connect(server.addr, &config).await);
        orderly.send("GET /fine HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n").await;
        let head = orderly.head().await;
        assert_eq!(orderly.body(head.content_length()).await.unwrap(), b"fine");
        assert_eq!(orderly.io.read(&mut [0; 16]).await.unwrap(), 0);

        let mut victim = Raw::over(shake(&config, testkit::http::narrow(server.addr).await).await.unwrap());
        victim.ask("/large").await;
        let head = victim.head().await;
        assert_eq!((head.status, head.content_length()), (200, LARGE));
        truncate(&server.tree.path().join("large"), 1_000_001);
        let mut got = victim.buffered();
        let end = victim.io.read_to_end(&mut got).await.expect_err("the truncated file ends the response early");
        assert!(got.len() < LARGE && got == server.bytes[..got.len()], "{end}, after {} bytes", got.len());
        assert_eq!(get(server.addr, &config, "/fine").await, (200, b"fine".to_vec()));
    });
}

#[test]
fn what_a_client_sends_without_an_orderly_end_is_a_part() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        for version in [&TLS12, &TLS13] {
            for is_orderly in [true, false] {
                let (tls, config) = (IDENTITIES[0].tls(), client(&[version], &[]));
                let accept = async { tls.accept(listener.accept().await.unwrap().0).await.unwrap() };
                let (mut server, mut client) = tokio::join!(accept, connect(addr, &config));
                client.write_all(b"a part").await.unwrap();
                client.flush().await.unwrap();
                match is_orderly {
                    true => client.shutdown().await.unwrap(),
                    // The end of the connection alone, which anybody on the way can send.
                    false => client.get_mut().0.shutdown().await.unwrap(),
                }
                let mut got = Vec::new();
                let end = server.read_to_end(&mut got).await;
                assert_eq!(got, b"a part");
                match is_orderly {
                    true => assert_eq!(end.unwrap(), got.len()),
                    false => assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof, "{version:?}"),
                }
            }
        }
    });
}

#[test]
fn several_cores_share_a_certificate() {
    testkit::http::watched(|| {
        let cores = millstream::runtime::Cores::new(2).unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 2).unwrap();
        let addr = listeners.local_addr();
        let service = tower::service_fn(async |_: Request<RequestBody>| {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("of a core"))))
        });
        let _running = server::serve_cores(&cores, listeners, service).tls(IDENTITIES[0].tls()).run();
        testkit::http::Flavour::CurrentThread.runtime().block_on(async {
            let config = client(BOTH, &["http/1.1"]);
            for _ in 0..8 {
                assert_eq!(get(addr, &config, "/").await, (200, b"of a core".to_vec()));
            }
        });
    });
}
