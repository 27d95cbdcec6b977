//! Connections that the kernel encrypts. Where it cannot, the same requests have the same answers.

use std::process::Command;

use millstream::metrics::Snapshot;
use millstream::{Capabilities, Support};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::{cipher_suite, default_provider};
use tokio_rustls::rustls::{CipherSuite, SupportedCipherSuite};

use super::*;
use testkit::http::{on_both, pages, sha256};
use testkit::skips::tell;
use testkit::{alone, child};

const MIB: usize = 1 << 20;
/// Bytes of a file from which on the kernel encrypts.
const LONG: usize = 256 << 10;

fn is_supported() -> bool {
    Capabilities::get().kernel_tls().is_yes() && is_mapped()
}

fn is_mapped() -> bool {
    let capabilities = Capabilities::get();
    capabilities.mapping().is_yes() && capabilities.sendfile().is_yes()
}

/// Returns whether the kernel encrypts. Otherwise the rest of a test is skipped.
fn supported() -> bool {
    if let Support::No(why) = Capabilities::get().kernel_tls() {
        tell(&format!("kernel TLS: {why}"));
    }
    is_supported()
}

/// A server whose files have these lengths, and names: `/LENGTH`.
struct Lengths {
    server: Server,
    bytes: Vec<u8>,
}

impl Lengths {
    async fn start(lengths: &[usize]) -> Self {
        let server = Server::start(IDENTITIES[0].tls().kernel_tls(true)).await;
        let bytes = pages(*lengths.iter().max().unwrap());
        for len in lengths {
            std::fs::write(server.tree.path().join(len.to_string()), &bytes[..*len]).unwrap();
        }
        Self { server, bytes }
    }

    async fn connect(&self, config: &Arc<ClientConfig>) -> Raw<TlsStream<TcpStream>> {
        Raw::over(connect(self.server.addr, config).await)
    }

    async fn check(&self, client: &mut Raw<TlsStream<TcpStream>>, len: usize) {
        let (status, got) = client.get(&format!("/{len}")).await;
        assert_eq!((status, got.len(), sha256(got)), (200, len, sha256(&self.bytes[..len])));
    }
}

fn http1() -> Arc<ClientConfig> {
    client(BOTH, &["http/1.1"])
}

#[test]
fn files_of_all_lengths_arrive_with_every_cipher() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let lengths = [1, 16 << 10, LONG - 1, LONG, LONG + 1, MIB + 1, 7 * MIB];
        let served = Lengths::start(&lengths).await;
        let suites = [
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ];
        for suite in suites {
            let config = with_suite(suite);
            let before = Snapshot::now();
            let mut client = served.connect(&config).await;
            assert_eq!(client.io.get_ref().1.negotiated_cipher_suite().map(|suite| suite.suite()), Some(suite.suite()));
            // Shorter ones before and behind those that the kernel sends.
            for len in lengths.iter().chain(lengths.iter().rev()) {
                served.check(&mut client, *len).await;
            }
            assert_eq!(client.get("/fine").await, (200, b"fine".to_vec()));
            let counted = Snapshot::now().since(&before);
            // A kernel may lack the last one.
            let may_lack = suite.suite() == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 && counted.tls_by_kernel == 0;
            assert!(may_lack || counted.tls_by_kernel == u64::from(is_supported()), "{:?}", suite.suite());
        }
        supported();
    });
}

fn with_suite(suite: SupportedCipherSuite) -> Arc<ClientConfig> {
    let provider = CryptoProvider { cipher_suites: vec![suite], ..default_provider() };
    let mut roots = RootCertStore::empty();
    roots.add(IDENTITIES[0].der.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

#[test]
fn a_hundred_mebibytes_take_about_one_sendfile_for_each() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const LEN: usize = 100 * MIB;
        let served = Lengths::start(&[LEN]).await;
        let mut client = served.connect(&http1()).await;
        let before = Snapshot::now();
        served.check(&mut client, LEN).await;
        let counted = Snapshot::now().since(&before);
        if supported() {
            let (writes, by_sendfile) = (counted.writes, counted.bytes_by_sendfile);
            println!("{writes} calls, {by_sendfile} B by sendfile");
            // About 100. A client that reads as fast as the server writes leaves less room for each.
            assert!(by_sendfile > (LEN - MIB) as u64 && writes <= 150, "{writes} calls, {by_sendfile} B");
        }
    });
}

#[test]
fn only_files_over_tls_1_3_and_http_1_are_handed_over() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let served = Lengths::start(&[LONG]).await;
        let before = Snapshot::now();
        let old = client(&[&tokio_rustls::rustls::version::TLS12], &["http/1.1"]);
        served.check(&mut served.connect(&old).await, LONG).await;
        let mut short = served.connect(&http1()).await;
        short.ask("/tokens").await;
        assert_eq!(short.head().await.status, 200);
        assert_eq!(Snapshot::now().since(&before).tls_by_kernel, 0);
        // Resumed sessions have tickets behind them, too.
        for _ in 0..2 {
            served.check(&mut served.connect(&http1()).await, LONG).await;
        }
        assert_eq!(Snapshot::now().since(&before).tls_by_kernel, 2 * u64::from(is_supported()));
        let off = Server::start(IDENTITIES[0].tls()).await;
        assert_eq!(sha256(get(off.addr, &http1(), "/large").await.1), sha256(&off.bytes));
        assert_eq!(Snapshot::now().since(&before).tls_by_kernel, 2 * u64::from(is_supported()));
        supported();
    });
}

/// Connects with a receive buffer of two records.
async fn connect_narrow(addr: SocketAddr) -> Raw<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    Raw::over(shake(&http1(), socket.connect(addr).await.unwrap()).await.unwrap())
}

#[test]
fn a_slow_reader_gets_every_byte_before_the_connection_is_closed() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        // Not a multiple of a record, nor of a page.
        const LEN: usize = MIB + 12_345;
        let served = Lengths::start(&[LEN]).await;
        for (pause, send_buffer) in [(0, 1 << 20), (1, 1 << 20), (5, 32 << 10), (1, 4 << 10), (1, 100 << 10)] {
            served.server.send_buffer(send_buffer);
            let mut client = connect_narrow(served.server.addr).await;
            client.send(format!("GET /{LEN} HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n")).await;
            let head = client.head().await;
            assert_eq!((head.status, head.content_length()), (200, LEN));
            let mut got = 0;
            while got < LEN - 40_000 {
                got += client.body(20_000).await.unwrap().len();
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            let last = client.body(LEN - got).await.unwrap();
            assert_eq!(
                sha256(&last),
                sha256(&served.bytes[got..LEN]),
                "pauses of {pause} ms, a buffer of {send_buffer}"
            );
            // `close_notify` follows: without it rustls reports an error.
            assert_eq!(timeout(testkit::HANGS, client.io.read(&mut [0])).await.unwrap().unwrap(), 0);
        }
        supported();
    });
}

/// Where a packet has at most one segment, a socket with a small buffer takes a record in parts, and the kernel holds the
/// rest when the response ends.
#[test]
fn a_record_sent_in_parts_is_not_lost_when_the_connection_is_closed() {
    const NAME: &str = "kernel::a_record_sent_in_parts_is_not_lost_when_the_connection_is_closed";
    /// Settings of a loopback interface.
    const SMALL: &str = "ip link set dev lo up mtu 1500 gso_max_segs 1 gso_max_size 1500";
    if child::task().is_some() {
        assert!(is_supported(), "{:?}", Capabilities::get().kernel_tls());
        return on_both(close_behind_partial_records);
    }
    if !supported() {
        return;
    }
    let within = ["--net", "sh", "-c", &format!("{SMALL} && exec \"$0\" \"$@\"")].map(str::to_owned);
    let again = child::command(NAME, "in parts");
    let mut command = Command::new("unshare");
    command.args(within).arg(again.get_program()).args(again.get_args());
    command.envs(again.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let tried = Command::new("unshare").args(["--net", "sh", "-c", SMALL]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return tell("a loopback interface with small packets: needs root, unshare(1) and ip(8)");
    }
    child::run_within(Duration::from_secs(240), &mut command);
}

async fn close_behind_partial_records() {
    let lengths: Vec<usize> = (0..40).map(|n| LONG + n * 1111).collect();
    let served = Lengths::start(&lengths).await;
    served.server.send_buffer(2 << 10);
    for len in lengths {
        let mut client = connect_narrow(served.server.addr).await;
        client.send(format!("GET /{len} HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(client.head().await.content_length(), len);
        let mut got = 0;
        while got < len {
            let part = client.body((len - got).min(8000)).await.unwrap_or_else(|cut| {
                panic!("{} of {len} bytes are missing", len - got - cut.got.len());
            });
            assert!(part == served.bytes[got..got + part.len()]);
            got += part.len();
            if len - got < 120_000 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(timeout(testkit::HANGS, client.io.read(&mut [0])).await.unwrap().unwrap(), 0);
    }
}

#[test]
fn clients_that_reset_leave_nothing_behind() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const LEN: usize = 3 * MIB;
        let served = Lengths::start(&[LEN]).await;
        let before = Snapshot::now();
        for n in 0..10 {
            let mut client = connect_narrow(served.server.addr).await;
            client.ask(&format!("/{LEN}")).await;
            assert_eq!(client.head().await.status, 200);
            client.body(n * 10_000).await.unwrap();
            SockRef::from(client.io.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
        }
        served.check(&mut served.connect(&http1()).await, LEN).await;
        let left = async {
            while Snapshot::now().open_connections > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(testkit::HANGS, left).await.expect("connections are left");
        let expected = if is_supported() { 11 } else { 0 };
        assert_eq!(Snapshot::now().since(&before).tls_by_kernel, expected);
        supported();
    });
}

#[test]
fn requested_keys_are_used_or_the_connection_ends() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let served = Lengths::start(&[LONG]).await;
        let before = Snapshot::now();
        // Before the first file: the session keeps the connection.
        let mut early = served.connect(&http1()).await;
        assert_eq!(early.get("/fine").await.0, 200);
        early.io.get_mut().1.refresh_traffic_keys().unwrap();
        assert_eq!(early.get("/fine").await.0, 200);
        served.check(&mut early, LONG).await;
        assert_eq!(Snapshot::now().since(&before).tls_by_kernel, 0);

        let mut late = served.connect(&http1()).await;
        served.check(&mut late, LONG).await;
        late.io.get_mut().1.refresh_traffic_keys().unwrap();
        late.ask(&format!("/{LONG}")).await;
        let answered = late.try_head().await;
        if !is_supported() || replaces_keys() {
            assert_eq!(answered.unwrap().status, 200);
            assert_eq!(sha256(late.body(LONG).await.unwrap()), sha256(&served.bytes[..LONG]));
            late.io.get_mut().1.refresh_traffic_keys().unwrap();
            served.check(&mut late, LONG).await;
            assert_eq!(late.get("/fine").await.0, 200);
        } else {
            assert!(answered.is_err(), "an answer with old keys");
        }
        supported();
    });
}

/// Linux 6.14.
fn replaces_keys() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 14)
}

#[test]
fn a_client_that_stops_to_speak_tls_is_told() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let served = Lengths::start(&[LONG]).await;
        // A record with a wrong sum, and bytes that are no record.
        let forged = [&[23, 3, 3, 0, 20][..], &[7; 20]].concat();
        for garbage in [&forged[..], b"GET / HTTP/1.1\r\n\r\n"] {
            let mut client = served.connect(&http1()).await;
            served.check(&mut client, LONG).await;
            client.io.get_mut().0.write_all(garbage).await.unwrap();
            let error = timeout(testkit::HANGS, client.io.read(&mut [0])).await.unwrap().unwrap_err();
            assert!(error.to_string().contains("fatal alert"), "{error}");
            // The session's own alert, with keys that are out of date, is not sent as data.
            let before = std::io::Read::read(&mut client.io.get_mut().1.reader(), &mut [0]);
            assert!(!matches!(before, Ok(1..)), "data in front of the alert");
        }
        supported();
    });
}

#[test]
fn a_file_truncated_while_the_kernel_sends_it_is_no_response() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        // More than a socket holds.
        const LEN: usize = 32 * MIB;
        let served = Lengths::start(&[LEN]).await;
        let mut client = connect_narrow(served.server.addr).await;
        client.ask(&format!("/{LEN}")).await;
        assert_eq!(client.head().await.content_length(), LEN);
        truncate(&served.server.tree.path().join(LEN.to_string()), MIB);
        let cut = client.body(LEN).await.map(|got| got.len()).expect_err("the truncated file ends the response early");
        assert!(cut.got[..] == served.bytes[..cut.got.len()]);
        assert_eq!(get(served.server.addr, &http1(), "/fine").await, (200, b"fine".to_vec()));
        supported();
    });
}

#[test]
fn pipelined_requests_and_upgrades_follow_files() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let served = Lengths::start(&[LONG, MIB]).await;
        let mut client = served.connect(&http1()).await;
        // Short answers, which are gathered, just before the first long one.
        let asked = "GET /fine HTTP/1.1\r\nHost: mill\r\n\r\n".repeat(5);
        client.send(format!("{asked}GET /{LONG} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
        for _ in 0..5 {
            assert_eq!(client.head().await.content_length(), 4);
            assert_eq!(client.body(4).await.unwrap(), b"fine");
        }
        assert_eq!(client.head().await.content_length(), LONG);
        assert_eq!(sha256(client.body(LONG).await.unwrap()), sha256(&served.bytes[..LONG]));
        let asked = format!("GET /{MIB} HTTP/1.1\r\nHost: mill\r\n\r\nGET /{LONG} HTTP/1.1\r\nHost: mill\r\n\r\n");
        client.send(asked.repeat(3)).await;
        for len in [MIB, LONG].repeat(3) {
            assert_eq!(client.head().await.content_length(), len);
            assert_eq!(sha256(client.body(len).await.unwrap()), sha256(&served.bytes[..len]));
        }
        client.send("GET /mirror HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: mirror\r\n\r\n").await;
        assert_eq!(client.head().await.status, 101);
        client.send("abcde").await;
        assert_eq!(client.body(5).await.unwrap(), b"edcba");
        assert_eq!(timeout(testkit::HANGS, client.io.read(&mut [0])).await.unwrap().unwrap(), 0);
        supported();
    });
}
