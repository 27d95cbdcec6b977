//! Upstreams over TLS, and clients over TLS.

use std::fmt::Debug;
use std::sync::{LazyLock, Mutex};

use millstream::server::tls::Tls;
use millstream::server::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use millstream::server::tls::rustls::server::WebPkiClientVerifier;
use millstream::server::tls::rustls::{ALL_VERSIONS, ClientConfig, HandshakeKind, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use testkit::alone;
use testkit::http::{Flavour, h1_over, h2_over, watched};
use testkit::tls::{any_client, any_server};

struct Identity {
    certificate: String,
    key: String,
    der: CertificateDer<'static>,
    key_der: PrivateKeyDer<'static>,
}

/// The upstream's identity, and that of another server.
static IDENTITIES: LazyLock<[Identity; 2]> = LazyLock::new(|| {
    [["localhost", "127.0.0.1"], ["elsewhere", "10.0.0.1"]].map(|names| {
        let made = rcgen::generate_simple_self_signed(names.map(str::to_owned)).unwrap();
        let key = made.signing_key.serialize_pem();
        let key_der = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        Identity { certificate: made.cert.pem(), key, der: made.cert.into(), key_der }
    })
});

pub(crate) fn tls() -> Tls {
    Tls::from_pem(&IDENTITIES[0].certificate, &IDENTITIES[0].key).unwrap()
}

fn roots(trusted: &[Identity]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for identity in trusted {
        roots.add(identity.der.clone()).unwrap();
    }
    roots
}

/// A client that trusts all identities and offers these protocols.
pub(crate) fn trusting(alpn: &[&str]) -> Arc<ClientConfig> {
    let mut config = any_client(ALL_VERSIONS).with_root_certificates(roots(&*IDENTITIES)).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

pub(crate) fn secured(to: SocketAddr, config: Arc<ClientConfig>) -> ProxyBuilder {
    Proxy::builder(format!("https://{to}").parse().unwrap()).upstream_tls(config).timeout(HANGS).connect_timeout(HANGS)
}

/// Serves over TLS. Returns the number of connections.
async fn start_tls<F, R>(tls: Tls, handler: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(Request<millstream::server::RequestBody>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |request| {
        let answer = handler(request);
        async { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let server = serve(listener, service).limits(Limits::default().streaming_requests(|_| true)).tls(tls);
    let server = server.on_connection(move |_, accepted, _| {
        assert!(accepted.is_tls());
        count.fetch_add(1, Ordering::Relaxed);
    });
    tokio::spawn(server.into_future());
    (addr, accepted)
}

/// Responds with the version of the request, and the bytes of its body twice.
async fn twice(request: Request<millstream::server::RequestBody>) -> Answer {
    let version = HeaderValue::from_str(&format!("{:?}", request.version())).unwrap();
    let uri = HeaderValue::from_str(&request.uri().to_string()).unwrap();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut response = Response::new(boxed(Full::from([body.clone(), body].concat())));
    response
        .headers_mut()
        .extend([(HeaderName::from_static("x-version"), version), (HeaderName::from_static("x-target"), uri)]);
    response
}

#[test]
fn bodies_pass_by_the_version_that_is_agreed_on() {
    on_both(async || {
        let (upstream, accepted) = start_tls(tls(), twice).await;
        for (alpn, version) in [
            (&[][..], "HTTP/2.0"),
            (&["h2", "http/1.1"], "HTTP/2.0"),
            (&["http/1.1"], "HTTP/1.1"),
            (&["h2"], "HTTP/2.0"),
        ] {
            let addr = proxy(secured(upstream, trusting(alpn))).await;
            accepted.store(0, Ordering::Relaxed);
            for len in [0, 1, 100_000, 3 << 20] {
                let sent = noise(len);
                let mut client = Raw::connect(addr).await;
                let head = format!("POST /a?b HTTP/1.1\r\nHost: mill\r\nContent-Length: {len}\r\n\r\n");
                client.send([head.as_bytes(), &sent].concat()).await;
                let head = client.head().await;
                assert_eq!((head.status, head.field("x-version")), (200, Some(version)), "{alpn:?}");
                let target = if version == "HTTP/2.0" { "https://mill/a?b" } else { "/a?b" };
                assert_eq!(head.field("x-target"), Some(target));
                let got = client.body(head.content_length()).await.unwrap();
                assert!(got == [&sent[..], &sent].concat(), "{len} bytes by {version}");
            }
            let answer = h2(addr).await.send_request(request("http://mill/two")).await.unwrap();
            assert_eq!(answer.headers()["x-version"], version);
            assert_eq!(accepted.load(Ordering::Relaxed), 1, "{alpn:?}: one connection, kept or shared");
        }
    });
}

#[test]
fn a_burst_of_requests_shares_the_connection_that_is_negotiated() {
    on_both(async || {
        for (alpn, connections) in [("h2", 1..=1), ("http/1.1", 1..=20)] {
            let (upstream, accepted) = start_tls(tls(), twice).await;
            let addr = proxy(secured(upstream, trusting(&[alpn]))).await;
            let asking = (0..20).map(|_| async { Raw::connect(addr).await.get("/").await.0 });
            let statuses = futures_util::future::join_all(asking).await;
            assert_eq!(statuses, [200; 20]);
            let accepted = accepted.load(Ordering::Relaxed);
            assert!(connections.contains(&accepted), "{accepted} connections by {alpn}");
        }
    });
}

/// Keeps the causes of what the proxy reports.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "millstream"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Causes(&self.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Causes<'a>(&'a Mutex<Vec<String>>);

impl Visit for Causes<'_> {
    fn record_error(&mut self, _: &Field, error: &(dyn std::error::Error + 'static)) {
        let causes = std::iter::successors(Some(error), |error| error.source());
        self.0.lock().unwrap().push(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

#[test]
fn only_the_log_says_why_a_connection_is_not_trusted() {
    // A log of one thread misses events that another thread has reported first.
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let log = Log::default();
            let _reporting = tracing::subscriber::set_default(log.clone());
            let (good, _) = start_tls(tls(), twice).await;
            let other = Tls::from_pem(&IDENTITIES[1].certificate, &IDENTITIES[1].key).unwrap();
            let (misnamed, _) = start_tls(other, twice).await;
            let plain = start(mirror).await;
            let silent = raw_upstream(async |stream| {
                let _stream = stream;
                std::future::pending().await
            })
            .await;
            let strangers =
                any_client(ALL_VERSIONS).with_root_certificates(roots(&IDENTITIES[1..])).with_no_client_auth();
            for (upstream, config, cause, advice) in [
                (good, Arc::new(strangers), "invalid peer certificate", "upstream_tls"),
                (misnamed, trusting(&[]), "not valid for name", "upstream_tls"),
                (plain, trusting(&[]), "corrupt message", "speaks TLS"),
                (silent, trusting(&[]), "timed out", "in the time to connect"),
                (good, trusting(&["spdy/3"]), "NoApplicationProtocol", "refuses"),
            ] {
                // Only one of them is to be too late, however slow the machine is.
                let limit = if cause == "timed out" { Duration::from_millis(200) } else { HANGS };
                let addr = proxy(secured(upstream, config).connect_timeout(limit)).await;
                let (status, body) = Raw::connect(addr).await.get("/").await;
                let body = String::from_utf8(body).unwrap();
                assert!(status == 502 && body.contains("securely"), "{cause}: {status} {body}");
                assert!(!body.contains("127.0.0.1") && !body.contains(cause), "{body}");
                // The servers of this thread report the ends of their connections too.
                let mut reports = std::mem::take(&mut *log.0.lock().unwrap());
                reports.retain(|report| report.contains("no TLS connection"));
                let [said] = &reports[..] else { panic!("{cause}: {reports:?}") };
                let parts = [cause, advice, &format!("https://{upstream}")];
                assert!(parts.iter().all(|part| said.contains(part)), "{cause}: {said}");
            }
        });
    });
}

/// Starts a TLS server of rustls alone. `talk` gets each connection.
async fn raw_tls<R: Future<Output = ()> + Send + 'static>(
    config: ServerConfig,
    talk: impl Fn(tokio_rustls::server::TlsStream<TcpStream>) -> R + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    raw_upstream(move |stream| {
        let (acceptor, talk) = (acceptor.clone(), talk.clone());
        async move {
            // Clients may refuse the certificate.
            if let Ok(stream) = acceptor.accept(stream).await {
                talk(stream).await;
            }
        }
    })
    .await
}

async fn head_over(stream: &mut (impl AsyncReadExt + Unpin)) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

fn server_config() -> ServerConfig {
    let identity = &IDENTITIES[0];
    let config = any_server().with_no_client_auth();
    config.with_single_cert(vec![identity.der.clone()], identity.key_der.clone_key()).unwrap()
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn sessions_are_resumed() {
    on_both(async || {
        let kinds = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&kinds);
        let upstream = raw_tls(server_config(), move |mut stream| {
            all.lock().unwrap().push(stream.get_ref().1.handshake_kind());
            async move {
                while head_over(&mut stream).await {
                    stream.write_all(OK).await.unwrap();
                    stream.flush().await.unwrap();
                }
            }
        })
        .await;
        let config = trusting(&[]);
        // Two proxies share the sessions of one configuration.
        for _ in 0..2 {
            let addr = proxy(secured(upstream, Arc::clone(&config)).idle_connections(0)).await;
            for _ in 0..3 {
                assert_eq!(Raw::connect(addr).await.get("/").await, (200, b"ok".to_vec()));
            }
        }
        let kinds = kinds.lock().unwrap();
        assert_eq!(kinds[0], Some(HandshakeKind::Full));
        assert_eq!(kinds[1..], [Some(HandshakeKind::Resumed); 5]);
    });
}

#[test]
fn a_certificate_of_the_proxy_is_shown() {
    on_both(async || {
        let (ours, theirs) = (&IDENTITIES[1], &IDENTITIES[0]);
        let config = any_server();
        let (trusted, provider) = (Arc::new(roots(&IDENTITIES[1..])), Arc::clone(config.crypto_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(trusted, provider).build().unwrap();
        let config = config.with_client_cert_verifier(verifier);
        let config = config.with_single_cert(vec![theirs.der.clone()], theirs.key_der.clone_key()).unwrap();
        let (upstream, _) = start_tls(Tls::from_config(Arc::new(config)), twice).await;
        let shown = any_client(ALL_VERSIONS).with_root_certificates(roots(&*IDENTITIES));
        let shown = shown.with_client_auth_cert(vec![ours.der.clone()], ours.key_der.clone_key()).unwrap();
        for (config, status) in [(Arc::new(shown), 200), (trusting(&[]), 502)] {
            let addr = proxy(secured(upstream, config)).await;
            assert_eq!(Raw::connect(addr).await.get("/").await.0, status);
        }
    });
}

#[test]
fn an_end_without_a_notice_is_no_clean_end() {
    on_both(async || {
        for says_so in [false, true] {
            let upstream = raw_tls(server_config(), move |mut stream| async move {
                head_over(&mut stream).await;
                // The end of the connection is that of the body.
                stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it").await.unwrap();
                stream.flush().await.unwrap();
                if says_so {
                    stream.shutdown().await.unwrap();
                } else {
                    stream.get_mut().0.shutdown().await.unwrap();
                }
            })
            .await;
            let addr = proxy(secured(upstream, trusting(&[]))).await;
            for answer in [
                h1(addr).await.send_request(request("/")).await,
                h2(addr).await.send_request(request("http://mill/")).await,
            ] {
                // hyper drops what it has not written when a body fails, the head too.
                let got = match answer {
                    Ok(answer) => timeout(HANGS, whole(answer)).await.expect("an end"),
                    Err(error) => Err(error),
                };
                assert_eq!(got.as_deref().ok(), says_so.then_some(&b"all of it"[..]));
            }
        }
    });
}

#[test]
fn a_protocol_is_changed_over_http1() {
    on_both(async || {
        // Prefers HTTP/2, which has no such change.
        let mut config = server_config();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let upstream = raw_tls(config, async |mut stream| {
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            head_over(&mut stream).await;
            let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello";
            stream.write_all(head).await.unwrap();
            let (mut from, mut to) = tokio::io::split(stream);
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        })
        .await;
        let addr = proxy(secured(upstream, trusting(&[]))).await;
        let mut client = Raw::connect(addr).await;
        client.send("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
        assert_eq!(client.head().await.status, 101);
        assert_eq!(client.body(5).await.unwrap(), b"hello");
        let bytes = noise(300_000);
        let (mut from, mut to) = client.io.into_split();
        let sent = bytes.clone();
        tokio::spawn(async move {
            to.write_all(&sent).await.unwrap();
            to.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        timeout(HANGS, from.read_to_end(&mut got)).await.expect("an end").unwrap();
        assert!(got == bytes, "{} bytes", got.len());
    });
}

#[test]
fn the_scheme_is_that_of_the_clients_connection() {
    on_both(async || {
        let upstream = start(mirror).await;
        for (set, expected) in [(None, "https"), (Some("http"), "http")] {
            let plan = plan(upstream, false).forwarded(true);
            let plan = set.into_iter().fold(plan, ProxyBuilder::scheme);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, plan.build().unwrap()).tls(tls()).into_future());
            for alpn in ["http/1.1", "h2"] {
                let stream = TcpStream::connect(addr).await.unwrap();
                let connector = TlsConnector::from(trusting(&[alpn]));
                let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
                let answer = match alpn {
                    "h2" => h2_over(stream).await.send_request(request("https://mill/")).await,
                    _ => h1_over(stream).await.send_request(request("/")).await,
                };
                let seen = String::from_utf8(whole(answer.unwrap()).await.unwrap().to_vec()).unwrap();
                assert!(seen.contains(&format!("\"x-forwarded-proto\": \"{expected}\"")), "{alpn}: {seen}");
                let forwarded = format!("\"forwarded\": \"for=127.0.0.1;host=mill;proto={expected}\"");
                assert!(seen.contains(&forwarded), "{alpn}: {seen}");
            }
        }
    });
}

#[test]
fn whom_to_trust_has_to_be_said() {
    let error = Proxy::new("https://mill".parse().unwrap()).unwrap_err();
    let expected = "invalid upstream_tls: none, for https://mill; allowed: a configuration that says whom to trust";
    assert_eq!(error.to_string(), expected);
}
