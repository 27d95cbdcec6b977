//! Certificates for several names, with OCSP responses.

use std::fs;
use std::io;
use std::sync::Mutex;

use millstream::server::tls::{TlsBuilder, TlsError};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{CipherSuite, DigitallySignedStruct, Error, SignatureScheme};

use super::*;
use testkit::http::on_both;

/// Accepts everything, and records what a server has stapled.
#[derive(Debug)]
struct Believing {
    schemes: Vec<SignatureScheme>,
    stapled: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.stapled.lock().unwrap() = ocsp_response.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

fn identity(names: &[&str], algorithm: &'static SignatureAlgorithm) -> Identity {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let made = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    Identity { certificate: made.pem(), key: key.serialize_pem(), der: made.into() }
}

fn add(builder: TlsBuilder, identity: &Identity) -> TlsBuilder {
    builder.certificate_pem(&identity.certificate, &identity.key)
}

/// Returns the certificate and the OCSP response for a name.
async fn shown(
    addr: SocketAddr,
    name: &'static str,
    schemes: &[SignatureScheme],
) -> (CertificateDer<'static>, Vec<u8>) {
    let believing = Arc::new(Believing { schemes: schemes.to_vec(), stapled: Mutex::default() });
    let config = any_client(BOTH).dangerous().with_custom_certificate_verifier(Arc::clone(&believing) as Arc<_>);
    let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = connector.connect(ServerName::try_from(name).unwrap(), stream).await.unwrap();
    let certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let stapled = believing.stapled.lock().unwrap().clone();
    (certificate, stapled)
}

#[test]
fn a_certificate_is_chosen_by_name_and_by_what_the_client_supports() {
    const ANY: &[SignatureScheme] = &[SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256];
    const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
    on_both(async || {
        let main = identity(&["mill"], &PKCS_ECDSA_P256_SHA256);
        let exact = identity(&["A.stream.test", "other.test"], &PKCS_ED25519);
        let old = identity(&["a.stream.test"], &PKCS_ECDSA_P256_SHA256);
        let wild = identity(&["*.stream.test"], &PKCS_ECDSA_P256_SHA256);
        let tls = [&main, &exact, &old, &wild].into_iter().fold(Tls::builder(), add).build().unwrap();
        let server = Server::start(tls.clone()).await;
        for (name, schemes, expected) in [
            ("a.stream.test", ANY, &exact),
            ("A.STREAM.TEST", ANY, &exact),
            ("a.stream.test", ECDSA, &old),
            ("other.test", ANY, &exact),
            // No other certificate has this name: the first that the client can use.
            ("other.test", ECDSA, &main),
            ("b.stream.test", ECDSA, &wild),
            ("b.a.stream.test", ANY, &main),
            ("stream.test", ANY, &main),
            ("mill", ANY, &main),
            ("unknown.test", ANY, &main),
            ("127.0.0.1", ANY, &main),
        ] {
            assert_eq!(shown(server.addr, name, schemes).await.0, expected.der, "{name} with {schemes:?}");
        }
        // One certificate for all names replaces them.
        tls.replace_pem(&wild.certificate, &wild.key).unwrap();
        assert_eq!(shown(server.addr, "mill", ANY).await.0, wild.der);
        assert_eq!(shown(server.addr, "a.stream.test", ANY).await.0, wild.der);
    });
}

#[test]
fn an_ocsp_response_is_stapled_to_its_certificate_and_reloaded() {
    const ECDSA: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let response = dir.path().join("response.der");
        let (first, second) =
            (identity(&["first.test"], &PKCS_ECDSA_P256_SHA256), identity(&["second.test"], &PKCS_ECDSA_P256_SHA256));
        let builder = add(add(Tls::builder(), &first), &second).ocsp_file(&response);
        let missing = builder.clone().build().unwrap_err();
        assert!(matches!(&missing, TlsError::Read(path, _) if *path == response), "{missing:?}");
        fs::write(&response, b"good until noon").unwrap();
        let tls = builder.build().unwrap();
        let server = Server::start(tls.clone()).await;
        assert_eq!(shown(server.addr, "first.test", ECDSA).await.1, b"");
        assert_eq!(shown(server.addr, "second.test", ECDSA).await.1, b"good until noon");
        fs::write(&response, b"good until midnight").unwrap();
        tls.reload().unwrap();
        assert_eq!(shown(server.addr, "second.test", ECDSA).await.1, b"good until midnight");
    });
}

#[test]
fn a_builder_tells_what_is_missing() {
    assert!(matches!(Tls::builder().build(), Err(TlsError::NoCertificate)));
    let tells = |expected: &str, builder: TlsBuilder| {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
    };
    let builder = || IDENTITIES[0].builder();
    let roots = "set without roots; allowed: together with client_roots_file or client_roots_pem";
    tells(&format!("invalid optional_client_certificate: {roots}"), builder().optional_client_certificate());
    tells(&format!("invalid client_revocations_file: {roots}"), builder().client_revocations_file("lists.pem"));
    tells(
        "invalid rotate_ticket_keys: set without a file; allowed: together with ticket_keys",
        builder().rotate_ticket_keys(Duration::from_secs(1)),
    );
    tells("invalid reload_every: 0 s; allowed: a longer time", builder().reload_every(Duration::ZERO));
    tells(
        "invalid ocsp_file: response.der before any certificate; allowed: after the certificate it belongs to",
        Tls::builder().ocsp_file("response.der"),
    );
}

#[test]
fn the_server_prefers_aes_128_and_the_client_decides_on_chacha20() {
    use CipherSuite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    on_both(async || {
        let own = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        for (provider, offered, expected) in [
            (None, [1, 0, 2], TLS13_AES_128_GCM_SHA256),
            (None, [0, 2, 1], TLS13_AES_128_GCM_SHA256),
            (None, [2, 0, 1], TLS13_CHACHA20_POLY1305_SHA256),
            (Some(&own), [1, 0, 2], TLS13_AES_256_GCM_SHA384),
            (Some(&own), [2, 0, 1], TLS13_CHACHA20_POLY1305_SHA256),
        ] {
            let mut builder = IDENTITIES[0].builder();
            if let Some(provider) = provider {
                builder = builder.provider(Arc::clone(provider));
            }
            let server = Server::start(builder.build().unwrap()).await;
            let names = [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
            let mut client = tokio_rustls::rustls::crypto::ring::default_provider();
            let all = std::mem::take(&mut client.cipher_suites);
            let suite = |n: usize| *all.iter().find(|suite| suite.suite() == names[n]).unwrap();
            client.cipher_suites = offered.map(suite).to_vec();
            let config = ClientConfig::builder_with_provider(Arc::new(client)).with_protocol_versions(BOTH).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(IDENTITIES[0].der.clone()).unwrap();
            let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
            let stream = connect(server.addr, &config).await;
            let chosen = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
            assert_eq!(chosen, expected, "of {offered:?}, with the default: {}", provider.is_none());
        }
    });
}

#[test]
fn both_kinds_of_cryptography_speak_to_each_other() {
    on_both(async || {
        use tokio_rustls::rustls::crypto;
        let providers = [
            Some(crypto::ring::default_provider()),
            #[cfg(feature = "tls-aws-lc-rs")]
            Some(crypto::aws_lc_rs::default_provider()),
            None,
        ];
        for provider in providers {
            let builder = IDENTITIES[0].builder();
            let tls = match provider {
                Some(provider) => builder.provider(Arc::new(provider)),
                None => builder,
            };
            let server = Server::start(tls.build().unwrap()).await;
            for version in BOTH {
                let client = client(std::slice::from_ref(version), &["http/1.1"]);
                let (status, body) = get(server.addr, &client, "/large").await;
                assert!(status == 200 && body == server.bytes, "{version:?}");
            }
        }
    });
}
