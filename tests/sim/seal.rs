//! TLS of a server and of its clients. The sizes of all messages follow from the seed: they depend on no random number.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use millstream::server::tls::Tls;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use testkit::sim::{Dice, Socket};
use testkit::tls::any_client;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    CipherSuite, CipherSuiteCommon, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedCipherSuite,
    Tls13CipherSuite,
};

struct Identity {
    pem: String,
    key: String,
    trusted: RootCertStore,
}

/// Signatures of Ed25519 have one length, and so has a certificate whose number is chosen.
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let mut asked = CertificateParams::new(["mill".to_owned()]).unwrap();
    asked.serial_number = Some(SerialNumber::from(1));
    let made = asked.self_signed(&key).unwrap();
    let mut trusted = RootCertStore::empty();
    trusted.add(made.der().clone()).unwrap();
    Identity { pem: made.pem(), key: key.serialize_pem(), trusted }
});

/// The configuration of a server, and those of its clients, which keep its tickets.
pub(crate) struct Seals {
    pub(crate) server: Tls,
    clients: Vec<Arc<ClientConfig>>,
    /// Those of clients of HTTP/2.
    clients_of_two: Vec<Arc<ClientConfig>>,
    faults: Mutex<Vec<String>>,
}

/// Longer than a run, which no file of the machine changes.
const RELOADS: Duration = Duration::from_secs(1 << 25);

/// A cipher suite that no server has, which browsers offer first (RFC 8701).
static GREASE: LazyLock<SupportedCipherSuite> = LazyLock::new(|| {
    let suites = &any_client(&[&TLS13]).crypto_provider().cipher_suites.clone();
    let known = suites.iter().find_map(SupportedCipherSuite::tls13).expect("a suite of TLS 1.3");
    let common = CipherSuiteCommon {
        suite: CipherSuite::Unknown(0x1a1a),
        hash_provider: known.common.hash_provider,
        confidentiality_limit: known.common.confidentiality_limit,
    };
    let suite = Tls13CipherSuite { common, hkdf_provider: known.hkdf_provider, aead_alg: known.aead_alg, quic: None };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
});

/// Returns a provider whose preferred cipher is ChaCha20, as that of a client without AES instructions, or another.
fn provider(prefers_chacha: bool) -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(any_client(&[&TLS13]).crypto_provider());
    provider.cipher_suites.sort_by_key(|suite| is_chacha(suite.suite()) != prefers_chacha);
    provider.cipher_suites.insert(0, *GREASE);
    Arc::new(provider)
}

fn is_chacha(suite: CipherSuite) -> bool {
    format!("{suite:?}").contains("CHACHA20")
}

impl Seals {
    pub(crate) fn new() -> Self {
        let client = |version, alpn: Option<&[u8]>, prefers_chacha| {
            let client = ClientConfig::builder_with_provider(provider(prefers_chacha));
            let client = client.with_protocol_versions(&[version]).expect("a version");
            let client = client.with_root_certificates(IDENTITY.trusted.clone());
            let mut client = client.with_no_client_auth();
            client.alpn_protocols = alpn.into_iter().map(<[u8]>::to_vec).collect();
            Arc::new(client)
        };
        let clients = |alpn: &[u8]| {
            let each = [
                (&TLS13, Some(alpn), false),
                (&TLS13, None, false),
                (&TLS13, Some(alpn), true),
                (&TLS12, Some(alpn), false),
                (&TLS12, None, true),
            ];
            each.map(|(version, alpn, prefers_chacha)| client(version, alpn, prefers_chacha)).into()
        };
        Self {
            // A server that looks for other files stops to do so at its end.
            server: Tls::builder()
                .certificate_pem(&IDENTITY.pem, &IDENTITY.key)
                .reload_every(RELOADS)
                .build()
                .expect("an identity"),
            clients: clients(b"http/1.1"),
            clients_of_two: clients(b"h2"),
            faults: Mutex::default(),
        }
    }

    /// Returns the first message of a client.
    pub(crate) fn hello(&self, dice: &mut Dice) -> Vec<u8> {
        let mut client = ClientConnection::new(Arc::clone(dice.pick(&self.clients)), name()).expect("a configuration");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("memory");
        hello
    }

    /// Performs the handshake of a client, which speaks HTTP/2 then if `is_two`. Returns the socket if it fails.
    pub(crate) async fn connect(
        &self,
        dice: &mut Dice,
        socket: Socket,
        is_two: bool,
    ) -> Result<TlsStream<Socket>, (io::Error, Socket)> {
        let config = dice.pick(if is_two { &self.clients_of_two } else { &self.clients });
        let stream = TlsConnector::from(Arc::clone(config)).connect(name(), socket).into_fallible().await?;
        let chosen = stream.get_ref().1.negotiated_cipher_suite().expect("a cipher").suite();
        // Behind the one that no server has.
        let preferred = config.crypto_provider().cipher_suites[1].suite();
        // The server prefers AES-128, and ChaCha20 only for clients that prefer it.
        let is_right = if is_chacha(preferred) { is_chacha(chosen) } else { format!("{chosen:?}").contains("AES_128") };
        if !is_right {
            self.faults.lock().unwrap().push(format!("{chosen:?} for a client that prefers {preferred:?}"));
        }
        Ok(stream)
    }

    /// Returns the ciphers that the server should not have chosen.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }
}

/// Returns whether a client has resumed a session.
pub(crate) fn is_resumed(stream: &TlsStream<Socket>) -> bool {
    stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
}

fn name() -> ServerName<'static> {
    ServerName::try_from("mill").expect("a name")
}
