//! Certificates of clients.

use std::fs;
use std::path::Path;

use millstream::server::tls::{TlsBuilder, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;
use testkit::http::on_both;

struct Root(CertifiedIssuer<'static, KeyPair>);

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Root {
    fn new(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(authority(name), KeyPair::generate().unwrap()).unwrap())
    }

    /// Returns an authority below this one.
    fn intermediate(&self, name: &str, serial: u64) -> Self {
        let mut params = authority(name);
        params.serial_number = Some(SerialNumber::from(serial));
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    /// Issues a certificate, and returns a client that has it and trusts the server.
    fn client(&self, name: &str, serial: u64, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        self.client_below(name, serial, versions, &[])
    }

    /// As [`client`](Self::client). The client sends the certificates of these authorities too.
    fn client_below(
        &self,
        name: &str,
        serial: u64,
        versions: &[&'static SupportedProtocolVersion],
        above: &[&Self],
    ) -> Arc<ClientConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI(format!("spiffe://mill/{name}").try_into().unwrap()));
        params.serial_number = Some(SerialNumber::from(serial));
        let made = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(IDENTITIES[0].der.clone()).unwrap();
        let config = any_client(versions).with_root_certificates(roots);
        let mut chain = vec![made.into()];
        chain.extend(above.iter().map(|above| above.0.der().clone()));
        Arc::new(config.with_client_auth_cert(chain, key).unwrap())
    }

    fn revokes(&self, path: &Path, serials: &[u64]) {
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        fs::write(path, list.signed_by(&self.0).unwrap().pem().unwrap()).unwrap();
    }
}

/// The names of the client as the service has seen them, or the error of the handshake.
async fn seen(addr: SocketAddr, client: &Arc<ClientConfig>) -> std::io::Result<(String, bool)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = shake(client, TcpStream::connect(addr).await?).await?;
    stream.write_all(b"GET /client HTTP/1.1\r\nhost: mill\r\nconnection: close\r\n\r\n").await?;
    stream.flush().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").expect(&answer);
    let resumed = stream.get_ref().1.handshake_kind() == Some(tokio_rustls::rustls::HandshakeKind::Resumed);
    Ok((body.to_owned(), resumed))
}

const ALICE: &str = r#"ClientCertificate { dns_names: ["alice"], uris: ["spiffe://mill/alice"], .. }"#;

fn start(root: &Root) -> TlsBuilder {
    IDENTITIES[0].builder().client_roots_pem(root.0.pem())
}

#[test]
fn requests_carry_the_certificate_and_others_are_refused() {
    on_both(async || {
        let (root, other) = (Root::new("ours"), Root::new("others"));
        for version in BOTH {
            let versions = std::slice::from_ref(version);
            let server = Server::start(start(&root).build().unwrap()).await;
            let alice = root.client("alice", 1, versions);
            assert_eq!(seen(server.addr, &alice).await.unwrap(), (ALICE.to_owned(), false), "{version:?}");
            // The identity is that of the session.
            assert_eq!(seen(server.addr, &alice).await.unwrap(), (ALICE.to_owned(), true), "{version:?}");
            seen(server.addr, &other.client("mallory", 1, versions)).await.unwrap_err();
            seen(server.addr, &client(versions, &[])).await.unwrap_err();

            let server = Server::start(start(&root).optional_client_certificate().build().unwrap()).await;
            assert_eq!(seen(server.addr, &root.client("alice", 1, versions)).await.unwrap().0, ALICE, "{version:?}");
            assert_eq!(seen(server.addr, &client(versions, &[])).await.unwrap().0, "none", "{version:?}");
            seen(server.addr, &other.client("mallory", 1, versions)).await.unwrap_err();
        }
    });
}

#[test]
fn a_revoked_certificate_is_refused_also_with_a_session_from_before() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let [lists, tickets] = ["lists.pem", "tickets.key"].map(|name| dir.path().join(name));
        let root = Root::new("ours");
        root.revokes(&lists, &[2]);
        for in_file in [false, true] {
            let builder = start(&root).client_revocations_file(&lists);
            let builder = match in_file {
                true => builder.ticket_keys(&tickets).rotate_ticket_keys(Duration::from_secs(3600)),
                false => builder,
            };
            for version in BOTH {
                let versions = std::slice::from_ref(version);
                root.revokes(&lists, &[2]);
                let tls = builder.clone().build().unwrap();
                let server = Server::start(tls.clone()).await;
                let (alice, bob) = (root.client("alice", 1, versions), root.client("bob", 2, versions));
                assert_eq!(seen(server.addr, &alice).await.unwrap(), (ALICE.to_owned(), false));
                assert_eq!(seen(server.addr, &alice).await.unwrap(), (ALICE.to_owned(), true));
                seen(server.addr, &bob).await.unwrap_err();
                // A reload of the same lists keeps the sessions.
                tls.reload().unwrap();
                assert_eq!(seen(server.addr, &alice).await.unwrap(), (ALICE.to_owned(), true));
                root.revokes(&lists, &[1, 2]);
                tls.reload().unwrap();
                seen(server.addr, &alice).await.expect_err("the session was resumed");
            }
        }
    });
}

#[test]
fn a_client_of_a_revoked_authority_is_refused() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let lists = dir.path().join("lists.pem");
        let root = Root::new("ours");
        let staff = root.intermediate("staff", 5);
        let alice = staff.client_below("alice", 1, BOTH, &[&staff]);
        for (revoked, accepted) in [(&[1][..], true), (&[1, 5], false)] {
            // There is no list of the authority below. The serials of different issuers do not mix.
            root.revokes(&lists, revoked);
            let server = Server::start(start(&root).client_revocations_file(&lists).build().unwrap()).await;
            assert_eq!(seen(server.addr, &alice).await.is_ok(), accepted, "{revoked:?}");
        }
    });
}

#[test]
fn sessions_outlive_the_server_with_the_same_keys_and_the_same_demands() {
    on_both(async || {
        let dir = tempfile::tempdir().unwrap();
        let tickets = dir.path().join("tickets.key");
        let root = Root::new("ours");
        let with_keys = |builder: TlsBuilder| builder.ticket_keys(&tickets).build().unwrap();
        fs::write(&tickets, [7; 32]).unwrap();
        for version in BOTH {
            let versions = std::slice::from_ref(version);
            let client = client(versions, &[]);
            let resumed = async |tls: Tls| {
                let server = Server::start(tls).await;
                seen(server.addr, &client).await.map(|(_, resumed)| resumed)
            };
            assert!(!resumed(with_keys(IDENTITIES[0].builder())).await.unwrap());
            assert!(resumed(with_keys(IDENTITIES[0].builder())).await.unwrap(), "after a restart");
            // A session without a certificate opens no server that requires one.
            resumed(with_keys(start(&root))).await.unwrap_err();
            assert!(!resumed(IDENTITIES[0].tls()).await.unwrap(), "with other keys");
        }
    });
}

#[test]
fn roots_and_lists_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let [roots, lists] = ["roots.pem", "lists.pem"].map(|name| dir.path().join(name));
    let build = || {
        let builder = IDENTITIES[0].builder().client_roots_file(&roots).client_revocations_file(&lists);
        builder.build().map(drop)
    };
    assert!(matches!(build(), Err(TlsError::Read(path, _)) if path == roots));
    let root = Root::new("ours");
    for (text, expected) in [
        ("", "roots.pem: no certificate in it"),
        ("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "roots.pem: no PEM"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "roots.pem: certificate 1 is not a root"),
    ] {
        fs::write(&roots, text).unwrap();
        let wrong = build().unwrap_err();
        assert!(matches!(wrong, TlsError::ClientRoots(..)) && wrong.to_string().contains(expected), "{wrong}");
    }
    fs::write(&roots, root.0.pem()).unwrap();
    assert!(matches!(build(), Err(TlsError::Read(path, _)) if path == lists));
    for (text, expected) in [
        (root.0.pem(), "lists.pem: no revocation list in it"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n".to_owned(), "lists.pem: "),
    ] {
        fs::write(&lists, text).unwrap();
        let wrong = build().unwrap_err();
        assert!(matches!(wrong, TlsError::Revocations(..)) && wrong.to_string().contains(expected), "{wrong}");
    }
    root.revokes(&lists, &[]);
    build().unwrap();
}
