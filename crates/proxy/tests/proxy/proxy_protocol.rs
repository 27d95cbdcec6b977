//! PROXY headers to upstreams that read them.

use std::net::IpAddr;

use millstream::server::{Connection, Trusted};
use millstream_proxy::ProxyVersion;
use millstream_proxy_protocol::{ProxyHeader, ProxyListener, Ssl};
use tokio::io::{AsyncRead, AsyncWrite};

use super::tls::{secured, tls, trusting};
use super::*;

const VERSIONS: [ProxyVersion; 3] = [ProxyVersion::V1, ProxyVersion::V2, ProxyVersion::V2WithChecksum];
/// What upstreams speak.
const WAYS: [Way; 3] = [Way::Http1, Way::Http2, Way::Tls];
const ASK: &str = "GET / HTTP/1.1\r\nHost: mill\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Http1,
    Http2,
    Tls,
}

/// An upstream whose connections begin with a header, and the numbers of all and of open connections.
struct Server {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Server {
    /// Answers with the header. The path `/echo` changes the protocol to bytes that are sent back.
    async fn start(way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (accepted, open) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let counts = (Arc::clone(&accepted), Arc::clone(&open));
        let service = tower::service_fn(|mut request: Request<millstream::server::RequestBody>| {
            let text = seen(request.extensions().get().expect("a header"));
            let mut response = Response::new(Full::new(Bytes::from(text.clone())));
            if request.uri().path() == "/echo" {
                let change = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut io = hyper_util::rt::TokioIo::new(change.await.unwrap());
                    let mut bytes = [0; 4];
                    io.read_exact(&mut bytes).await.unwrap();
                    io.write_all(&bytes).await.unwrap();
                    io.shutdown().await.unwrap();
                });
                response = Response::new(Full::default());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let fields = response.headers_mut();
                fields.insert("connection", HeaderValue::from_static("upgrade"));
                fields.insert("upgrade", HeaderValue::from_static("echo"));
                fields.insert("x-seen", text.parse().unwrap());
            }
            std::future::ready(Ok::<_, io::Error>(response))
        });
        let server = serve(ProxyListener::new(listener, local()).refuse_others(true), service);
        let server = server.on_connection(move |_, connection: &Connection, _| {
            counts.0.fetch_add(1, Ordering::Relaxed);
            counts.1.fetch_add(1, Ordering::Relaxed);
            let (gone, open) = (connection.gone(), Arc::clone(&counts.1));
            tokio::spawn(async move {
                gone.await;
                open.fetch_sub(1, Ordering::Relaxed);
            });
        });
        tokio::spawn(if way == Way::Tls { server.tls(tls()) } else { server }.into_future());
        Self { addr, accepted, open }
    }

    fn plan(&self, way: Way, version: ProxyVersion) -> ProxyBuilder {
        plan_of(self.addr, way, version)
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

fn plan_of(addr: SocketAddr, way: Way, version: ProxyVersion) -> ProxyBuilder {
    let plan = match way {
        Way::Tls => secured(addr, trusting(&[])),
        way => plan(addr, way == Way::Http2),
    };
    plan.proxy_protocol(version)
}

fn local() -> Trusted {
    "127.0.0.1".parse().unwrap()
}

fn seen(header: &ProxyHeader) -> String {
    let fields = (header.authority(), header.unique_id(), header.ssl(), header.field(0xea));
    format!("{:?} {fields:?}", header.addresses())
}

/// The header of a client that is connected to the proxy.
fn own(client: &TcpStream) -> String {
    let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
    seen(&ProxyHeader::builder(from, to).build().unwrap())
}

async fn ask(raw: &mut Raw<impl AsyncRead + AsyncWrite + Unpin>) -> String {
    raw.send(ASK).await;
    let head = raw.head().await;
    assert_eq!(head.status, 200);
    String::from_utf8(raw.body(head.content_length()).await.unwrap()).unwrap()
}

/// Starts a proxy behind a load balancer.
async fn behind(plan: ProxyBuilder) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(ProxyListener::new(listener, local()), plan.build().unwrap()).into_future());
    addr
}

#[test]
fn the_upstream_sees_the_address_and_port_of_the_client() {
    on_both(async || {
        for way in WAYS {
            let server = Server::start(way).await;
            for version in VERSIONS {
                let addr = proxy(server.plan(way, version)).await;
                let stream = TcpStream::connect(addr).await.unwrap();
                let own = own(&stream);
                assert_eq!(ask(&mut Raw::over(stream)).await, own, "{way:?} {version:?}");
                // A client that speaks HTTP/2 itself.
                let stream = TcpStream::connect(addr).await.unwrap();
                let own = self::own(&stream);
                let mut client = testkit::http::h2_over(stream).await;
                let answer = client.send_request(request("http://mill/")).await.unwrap();
                assert_eq!(whole(answer).await.unwrap(), own, "{way:?} {version:?}");
            }
        }
    });
}

#[test]
fn the_header_of_a_load_balancer_is_passed_on() {
    on_both(async || {
        let mut ssl = Ssl::default();
        (ssl.is_tls, ssl.has_certificate, ssl.version) = (true, true, Some("TLSv1.3"));
        let four = ProxyHeader::builder("203.0.113.7:4711".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        let six = ProxyHeader::builder("[2001:db8::7]:4711".parse().unwrap(), "[::1]:443".parse().unwrap());
        let four = four.authority("mill.example").unique_id(b"id").ssl(ssl).field(0xea, b"vpce").build().unwrap();
        let six = six.build().unwrap();
        for way in WAYS {
            let server = Server::start(way).await;
            for version in VERSIONS {
                let addr = behind(server.plan(way, version)).await;
                // A check of the load balancer has no client.
                for header in [&four, &six, &ProxyHeader::local()] {
                    let mut raw = Raw::connect(addr).await;
                    raw.send(header.encode(ProxyVersion::V2)).await;
                    let whole = version != ProxyVersion::V1;
                    let expected = if whole { seen(header) } else { seen(&read(&header.encode(version))) };
                    assert_eq!(ask(&mut raw).await, expected, "{way:?} {version:?}");
                }
            }
        }
    });
}

fn read(bytes: &[u8]) -> ProxyHeader {
    ProxyHeader::parse(bytes).unwrap().unwrap().0
}

/// Sends a request, after `before`. Returns the first bytes of the connection to the upstream.
async fn first_bytes(
    upstream: tokio::net::TcpListener,
    client: impl AsyncRead + AsyncWrite + Unpin,
    before: &[u8],
) -> [u8; 14] {
    let mut raw = Raw::over(client);
    raw.send([before, ASK.as_bytes()].concat()).await;
    let mut bytes = [0; 14];
    upstream.accept().await.unwrap().0.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn only_a_connection_of_the_load_balancer_itself_is_sent_as_local() {
    const UNKNOWN: &[u8; 15] = b"PROXY UNKNOWN\r\n";
    const LOCAL: &[u8; 14] = b"\r\n\r\n\0\r\nQUIT\n\x20\0";
    const UNSPECIFIED: &[u8; 14] = b"\r\n\r\n\0\r\nQUIT\n\x21\0";
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        // One for each case, because a proxy sends a failed request again.
        let upstream = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (n, way) in WAYS.into_iter().enumerate() {
            for version in VERSIONS {
                let expected = |command: &[u8; 14]| match version {
                    ProxyVersion::V1 => *UNKNOWN.first_chunk().unwrap(),
                    _ => *command,
                };
                for (before, sent) in [
                    ([&LOCAL[..], b"\0\0"].concat(), LOCAL),
                    ([&UNSPECIFIED[..], b"\0\0"].concat(), UNSPECIFIED),
                    ([&UNSPECIFIED[..], b"\0\x05\x05\0\x02id"].concat(), UNSPECIFIED),
                    (UNKNOWN.to_vec(), UNSPECIFIED),
                ] {
                    let upstream = upstream().await;
                    let plan = plan_of(upstream.local_addr().unwrap(), way, version);
                    let client = TcpStream::connect(behind(plan).await).await.unwrap();
                    let first = first_bytes(upstream, client, &before).await;
                    assert_eq!(first, expected(sent), "{way:?} {version:?} {before:?}");
                }
                // A client of a Unix socket.
                let upstream = upstream().await;
                let proxy = plan_of(upstream.local_addr().unwrap(), way, version).build().unwrap();
                let path = dir.path().join(format!("{n}{version:?}"));
                tokio::spawn(serve(UnixListener::bind(&path).await.unwrap(), proxy).into_future());
                let client = tokio::net::UnixStream::connect(&path).await.unwrap();
                assert_eq!(first_bytes(upstream, client, b"").await, expected(UNSPECIFIED), "{way:?} {version:?}");
            }
        }
    });
}

#[test]
fn an_ipv4_client_of_an_ipv6_socket_has_its_ipv4_address() {
    on_both(async || {
        let server = Server::start(Way::Http1).await;
        let listener = TcpListener::bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = server.plan(Way::Http1, ProxyVersion::V2).build().unwrap();
        tokio::spawn(serve(listener, proxy).into_future());
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let own = own(&stream);
        assert!(own.contains("destination: 127.0.0.1:"), "{own}");
        assert_eq!(ask(&mut Raw::over(stream)).await, own);
    });
}

/// Such as a layer that reads `X-Forwarded-For` of a trusted proxy.
#[test]
fn a_layer_may_name_another_client() {
    on_both(async || {
        let server = Server::start(Way::Http1).await;
        let proxy = server.plan(Way::Http1, ProxyVersion::V2).build().unwrap();
        let named =
            tower::ServiceBuilder::new().map_request(|mut request: Request<millstream::server::RequestBody>| {
                let handle = request.extensions().get::<Connection>().unwrap().handle().clone();
                request.extensions_mut().insert(Connection::new(IpAddr::from([203, 0, 113, 7]), handle));
                request
            });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, named.service(proxy)).into_future());
        let expected = ProxyHeader::builder(([203, 0, 113, 7], 0).into(), addr).build().unwrap();
        assert_eq!(ask(&mut Raw::connect(addr).await).await, seen(&expected));
    });
}

#[test]
fn clients_that_alternate_never_get_the_connection_of_another() {
    on_both(async || {
        for way in WAYS {
            let server = Server::start(way).await;
            let addr = proxy(server.plan(way, ProxyVersion::V2)).await;
            let mut clients = Vec::new();
            for _ in 0..3 {
                let stream = TcpStream::connect(addr).await.unwrap();
                clients.push((own(&stream), Raw::over(stream)));
            }
            for _ in 0..5 {
                for (own, raw) in &mut clients {
                    assert_eq!(ask(raw).await, *own, "{way:?}");
                }
            }
            assert_eq!(server.accepted(), 3, "{way:?}: each client keeps its connection");
        }
    });
}

#[test]
fn requests_of_one_client_share_a_connection_of_http2() {
    on_both(async || {
        let server = Server::start(Way::Http2).await;
        let addr = proxy(server.plan(Way::Http2, ProxyVersion::V2)).await;
        let stream = TcpStream::connect(addr).await.unwrap();
        let own = own(&stream);
        let client = testkit::http::h2_over(stream).await;
        let asking = (0..20).map(|_| {
            let mut client = client.clone();
            async move { whole(client.send_request(request("http://mill/")).await.unwrap()).await.unwrap() }
        });
        let answers = futures_util::future::join_all(asking).await;
        assert!(answers.iter().all(|answer| *answer == own), "{answers:?}");
        assert_eq!(server.accepted(), 1);
    });
}

#[test]
fn tunnels_begin_with_the_header_of_their_client() {
    on_both(async || {
        for way in [Way::Http1, Way::Tls] {
            let server = Server::start(way).await;
            let addr = proxy(server.plan(way, ProxyVersion::V2)).await;
            let mut before = Raw::connect(addr).await;
            ask(&mut before).await;
            let stream = TcpStream::connect(addr).await.unwrap();
            let own = own(&stream);
            let mut raw = Raw::over(stream);
            raw.send("GET /echo HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nping").await;
            let head = raw.head().await;
            assert_eq!((head.status, head.field("x-seen")), (101, Some(&*own)), "{way:?}");
            assert_eq!(raw.body(4).await.unwrap(), b"ping", "{way:?}");
        }
    });
}

#[test]
fn an_idle_connection_of_another_client_makes_room() {
    on_both(async || {
        for (requests, idle) in [(1, 256), (10_000, 1)] {
            let server = Server::start(Way::Http1).await;
            let plan = server.plan(Way::Http1, ProxyVersion::V2).requests(requests).idle_connections(idle);
            let built = plan.build().unwrap();
            let addr = proxy_of(built.clone()).await;
            let mut clients = Vec::new();
            for accepted in 1..=3 {
                let stream = TcpStream::connect(addr).await.unwrap();
                let own = own(&stream);
                clients.push(Raw::over(stream));
                for _ in 0..2 {
                    assert_eq!(ask(clients.last_mut().unwrap()).await, own);
                    // A connection is given back before its place.
                    soon("the request ends", || built.state().in_progress == 0).await;
                    assert_eq!((built.idle_connections(), server.accepted()), (1, accepted), "{requests} {idle}");
                }
            }
            soon("the others are closed", || server.open() == 1).await;
        }
    });
}

#[test]
fn connections_of_clients_that_have_gone_are_closed() {
    on_both(async || {
        for way in WAYS {
            let server = Server::start(way).await;
            let plan = server.plan(way, ProxyVersion::V2).idle_timeout(Duration::from_millis(300));
            let addr = proxy(plan).await;
            for _ in 0..3 {
                ask(&mut Raw::connect(addr).await).await;
            }
            assert_eq!(server.accepted(), 3, "{way:?}");
            soon("the connections are closed", || server.open() == 0).await;
        }
    });
}

#[test]
fn few_clients_keep_a_connection_of_http2() {
    on_both(async || {
        for (most, kept) in [(2, 2), (0, 0)] {
            let server = Server::start(Way::Http2).await;
            let addr = proxy(server.plan(Way::Http2, ProxyVersion::V2).idle_connections(most)).await;
            let mut clients = Vec::new();
            for _ in 0..3 {
                let stream = TcpStream::connect(addr).await.unwrap();
                clients.push((own(&stream), Raw::over(stream)));
            }
            for (own, raw) in &mut clients {
                assert_eq!(ask(raw).await, *own);
            }
            soon("the oldest connections are closed", || server.open() == kept).await;
            // The latest client has its connection still, the first one gets another.
            for (at, expected) in [(2, 3 + usize::from(kept == 0)), (0, 4 + usize::from(kept == 0))] {
                let (own, raw) = &mut clients[at];
                assert_eq!(ask(raw).await, *own);
                assert_eq!(server.accepted(), expected);
            }
        }
    });
}
