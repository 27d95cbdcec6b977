//! Unit tests of `kernel`.

use super::*;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    CipherSuiteCommon, ClientConfig, ConnectionTrafficSecrets, RootCertStore, ServerConfig, SupportedCipherSuite,
    Tls13CipherSuite,
};

use crate::net::TcpListener;
use crate::server::tls::provider::provider;
use crate::server::tls::{Tls, TlsStream};
use crate::sys::tls_keys::Keys;

struct Ends {
    tls: Tls,
    client: Arc<ClientConfig>,
}

impl Ends {
    fn new(suite: SupportedCipherSuite, tickets: usize) -> Self {
        let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
        let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
        let mut config = ServerConfig::clone(&tls.config());
        config.enable_secret_extraction = true;
        config.send_tls13_tickets = tickets;
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.into()).unwrap();
        let provider = CryptoProvider { cipher_suites: vec![suite], ..CryptoProvider::clone(&provider().unwrap()) };
        let client = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
        let client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        Self { tls: Tls::from_config(Arc::new(config)), client: Arc::new(client) }
    }

    async fn connect(&self) -> (TlsStream<TcpStream>, tokio_rustls::client::TlsStream<tokio::net::TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (ours, _) = listener.accept().await.unwrap();
        let connector = TlsConnector::from(Arc::clone(&self.client));
        let (ours, theirs) =
            tokio::join!(self.tls.shake(ours, true), connector.connect(ServerName::try_from("mill").unwrap(), client),);
        (ours.unwrap(), theirs.unwrap())
    }
}

fn suites() -> Vec<SupportedCipherSuite> {
    provider().unwrap().cipher_suites.iter().copied().filter(|suite| suite.tls13().is_some()).collect()
}

/// Returns key and nonce as rustls tells them.
fn told(secrets: &ConnectionTrafficSecrets) -> (&[u8], &[u8]) {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key.as_ref(), iv.as_ref()),
        _ => unreachable!("another cipher"),
    }
}

fn assert_same(keys: &Keys, (sequence, secrets): &(u64, ConnectionTrafficSecrets), what: &str) {
    assert_eq!((keys.sequence, (&keys.key[..], &keys.nonce[..])), (*sequence, told(secrets)), "{what}");
}

#[tokio::test]
async fn the_kernel_continues_where_the_session_stands() {
    for suite in suites() {
        for (tickets, writes) in [(0, 0), (2, 0), (2, 3), (4, 100), (0, 7)] {
            let what = format!("{suite:?}, {tickets} tickets, {writes} writes");
            let ends = Ends::new(suite, tickets);
            // The second connection resumes the first one's session.
            for _ in 0..2 {
                let (mut ours, mut theirs) = ends.connect().await;
                for n in 0..writes {
                    let bytes = vec![7; 1 + n * 331];
                    ours.write_all(&bytes).await.unwrap();
                    ours.flush().await.unwrap();
                    theirs.read_exact(&mut vec![0; bytes.len()]).await.unwrap();
                }
                theirs.write_all(b"x").await.unwrap();
                ours.read_exact(&mut [0]).await.unwrap();
                let (kernel, next, session) = ours.into_kernel();
                let secrets = session.dangerous_extract_secrets().unwrap();
                assert_same(&kernel.unwrap().secret.keys(next.unwrap()), &secrets.tx, &what);
            }
        }
    }
}

#[tokio::test]
async fn a_requested_update_is_seen_and_leads_to_the_keys_of_the_session() {
    for suite in suites() {
        let ends = Ends::new(suite, 2);
        let (mut ours, mut theirs) = ends.connect().await;
        let mut byte = [0];
        theirs.write_all(b"x").await.unwrap();
        ours.read_exact(&mut byte).await.unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(ours.poll_kernel(&mut cx, &[]).is_ready());
        theirs.get_mut().1.refresh_traffic_keys().unwrap();
        theirs.write_all(b"x").await.unwrap();
        ours.read_exact(&mut byte).await.unwrap();
        let (kernel, _, mut session) = ours.into_kernel();
        let mut kernel = kernel.expect("no update was requested before");
        assert!(owes_update(&mut session));
        discard_records(&mut session).unwrap();
        kernel.secret.update();
        assert_same(&kernel.secret.keys(0), &session.dangerous_extract_secrets().unwrap().tx, &format!("{suite:?}"));
    }
}

#[tokio::test]
async fn a_session_that_is_about_to_replace_its_keys_keeps_its_connection() {
    const LIMIT: u64 = 64;
    let suite = suites()[0];
    let short: &'static Tls13CipherSuite = {
        let suite = suite.tls13().unwrap();
        let common = CipherSuiteCommon { confidentiality_limit: LIMIT, ..suite.common };
        Box::leak(Box::new(Tls13CipherSuite { common, ..*suite }))
    };
    for (writes, keeps) in [(LIMIT / 4, true), (LIMIT / 2, false), (2 * LIMIT, false)] {
        let mut ends = Ends::new(suite, 2);
        let mut config = ServerConfig::clone(&ends.tls.config());
        let provider = CryptoProvider { cipher_suites: vec![short.into()], ..(**config.crypto_provider()).clone() };
        let resolver = Arc::clone(&config.cert_resolver);
        config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        ends.tls = Tls::from_config(Arc::new(config));
        let (mut ours, mut theirs) = ends.connect().await;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for _ in 0..writes {
            ours.write_all(b"x").await.unwrap();
            ours.flush().await.unwrap();
            theirs.read_exact(&mut [0]).await.unwrap();
            assert!(matches!(ours.poll_kernel(&mut cx, &[]), Poll::Ready(Ok(()))));
        }
        assert_eq!(ours.into_kernel().0.is_some(), keeps, "after {writes} writes");
    }
}

#[tokio::test]
async fn a_session_with_new_keys_keeps_its_connection() {
    let ends = Ends::new(suites()[0], 2);
    let (mut ours, mut theirs) = ends.connect().await;
    theirs.get_mut().1.refresh_traffic_keys().unwrap();
    theirs.write_all(b"x").await.unwrap();
    ours.read_exact(&mut [0]).await.unwrap();
    ours.write_all(b"answer").await.unwrap();
    ours.flush().await.unwrap();
    let mut got = [0; 6];
    theirs.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"answer");
    assert!(ours.into_kernel().0.is_none());
}
