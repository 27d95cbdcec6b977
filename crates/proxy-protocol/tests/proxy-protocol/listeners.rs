//! All kinds of headers on all kinds of listeners, protocols and cuts.

use std::sync::{Arc, LazyLock};

use millstream::net::UnixListener;
use millstream::server::Limits;
use millstream::server::tls::Tls;
use millstream::server::tls::rustls::pki_types::{CertificateDer, ServerName};
use testkit::http::{Raw, h1_over, h2_over, on_both, request, whole};
use testkit::noise;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::made::{LOCAL, field, kinds, summed, tcp, v2};
use super::*;

/// The answer of the service to each kind of header, for a load balancer at an address.
fn expected(header: &[u8], client: Option<&str>, balancer: Option<SocketAddr>) -> String {
    let host = if header.ends_with(b"mill.example") || header.windows(12).any(|w| w == b"mill.example") {
        "mill.example"
    } else {
        "-"
    };
    match client {
        Some(client) => of_header(client, host),
        // The client of a Unix socket has no address.
        None if header.get(13).is_some_and(|family| [0x31, 0x32].contains(family)) && header[0] == b'\r' => {
            said(None, None, Some(host), 0)
        }
        None => said(balancer, balancer.map(|addr| addr.ip()), Some(host), 0),
    }
}

async fn ask_by_1(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> String {
    let answer = h1_over(io).await.send_request(request("/")).await.unwrap();
    String::from_utf8(whole(answer).await.unwrap().to_vec()).unwrap()
}

async fn ask_by_2(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> String {
    let answer = h2_over(io).await.send_request(request("http://mill/")).await.unwrap();
    String::from_utf8(whole(answer).await.unwrap().to_vec()).unwrap()
}

#[test]
fn the_client_is_that_of_the_header_over_each_protocol() {
    on_both(|| async {
        let addr = start(|listener| listener).await;
        for (header, client) in kinds() {
            for two in [false, true] {
                let mut stream = TcpStream::connect(addr).await.unwrap();
                let expected = expected(&header, client, Some(stream.local_addr().unwrap()));
                stream.write_all(&header).await.unwrap();
                let said = if two { ask_by_2(stream).await } else { ask_by_1(stream).await };
                assert_eq!(said, expected, "{header:?}");
            }
        }
    });
}

/// Certificate and key of the server.
static IDENTITY: LazyLock<(String, String, CertificateDer<'static>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.into())
});

#[test]
fn tls_begins_behind_the_header() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let tls = Tls::from_pem(&IDENTITY.0, &IDENTITY.1).unwrap();
        tokio::spawn(serve(ProxyListener::new(listener, local())).tls(tls).into_future());
        for (header, client) in kinds() {
            for alpn in ["http/1.1", "h2"] {
                let mut config = testkit::tls::client([IDENTITY.2.clone()]).with_no_client_auth();
                config.alpn_protocols = vec![alpn.into()];
                let mut stream = TcpStream::connect(addr).await.unwrap();
                let expected = expected(&header, client, Some(stream.local_addr().unwrap()));
                stream.write_all(&header).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
                let said = if alpn == "h2" { ask_by_2(stream).await } else { ask_by_1(stream).await };
                assert_eq!(said, expected, "{header:?}");
            }
        }
    });
}

/// A stream that holds one byte is read a byte at a time; one that holds several, at each cut.
#[test]
fn headers_are_cut_anywhere() {
    on_both(|| async {
        let (connect, listener) = Connect::new();
        tokio::spawn(serve(ProxyListener::new(listener, local())).into_future());
        for (header, client) in kinds() {
            let expected = expected(&header, client, Some(([127, 0, 0, 1], 9).into()));
            for (holds, two) in [(1, false), (1, true), (7, false), (16, true), (100, false)] {
                let mut stream = connect.connect(holds);
                stream.write_all(&header).await.unwrap();
                let said = if two { ask_by_2(stream).await } else { ask_by_1(stream).await };
                assert_eq!(said, expected, "{holds} of {header:?}");
            }
        }
    });
}

#[test]
fn bytes_behind_the_header_are_not_lost() {
    on_both(|| async {
        let addr = start(|listener| listener).await;
        let client = CLIENT.parse().unwrap();
        for header in [&b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n"[..], &tcp(CLIENT, "10.0.0.1:443", &[])] {
            for len in [0, 100, 400, 5000, 2 << 20] {
                let mut raw = Raw::connect(addr).await;
                let head = format!("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: {len}\r\n\r\n");
                // A second request behind the first.
                let next = b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n";
                raw.send([header, head.as_bytes(), &noise(len), next].concat()).await;
                for len in [len, 0] {
                    let head = raw.head().await;
                    let text = raw.body(head.content_length()).await.unwrap();
                    assert_eq!(String::from_utf8(text).unwrap(), said(Some(client), Some(client.ip()), Some("-"), len));
                }
            }
        }
    });
}

#[test]
fn a_unix_socket_is_trusted() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mill");
        let listener = ProxyListener::new(UnixListener::bind(&path).await.unwrap(), Trusted::none());
        tokio::spawn(serve(listener).into_future());
        for (header, client) in kinds() {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(&header).await.unwrap();
            assert_eq!(ask_by_1(stream).await, expected(&header, client, None));
        }
        let mut raw = Raw::over(UnixStream::connect(&path).await.unwrap());
        raw.ask("/").await;
        assert_eq!(raw.drain().await, b"", "without a header");
    });
}

#[test]
fn tokios_listener_is_one_too() {
    on_both(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(ProxyListener::new(listener, local())).into_future());
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(&summed(tcp(CLIENT, "10.0.0.1:443", &field(2, "mill.example")))).await.unwrap();
        assert_eq!(ask_by_1(stream).await, of_header(CLIENT, "mill.example"));
    });
}

/// The load balancer has one address, its clients have others.
#[test]
fn the_limit_for_an_address_is_that_of_clients() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let limits = Limits::default().per_address(2).exempt(Trusted::none());
        tokio::spawn(serve(ProxyListener::new(listener, local())).limits(limits).into_future());
        let mut kept = Vec::new();
        for (client, status) in [("7", 200), ("7", 200), ("7", 503), ("8", 200), ("8", 200), ("9", 200)] {
            let mut raw = Raw::connect(addr).await;
            raw.send(format!("PROXY TCP4 203.0.113.{client} 10.0.0.1 4711 443\r\n")).await;
            raw.ask("/").await;
            assert_eq!(raw.head().await.status, status, "client {client}");
            kept.push(raw);
        }
        // Checks of the load balancer count as its own.
        for status in [200, 200, 503] {
            let mut raw = Raw::connect(addr).await;
            raw.send(v2(LOCAL, 0, [])).await;
            raw.ask("/").await;
            assert_eq!(raw.head().await.status, status);
            kept.push(raw);
        }
    });
}

#[test]
fn others_connect_by_themselves() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let trusted = "192.0.2.0/24".parse().unwrap();
        tokio::spawn(serve(ProxyListener::new(listener, trusted)).into_future());
        let stream = TcpStream::connect(addr).await.unwrap();
        let own = stream.local_addr().unwrap();
        assert_eq!(ask_by_1(stream).await, said(Some(own), Some(own.ip()), None, 0));
        // HTTP knows no such request.
        for (header, _) in kinds() {
            let mut raw = Raw::connect(addr).await;
            raw.send([&header[..], b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n"].concat()).await;
            let answer = raw.drain().await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
        }
    });
}
