//! Certificates replaced while the server runs, and files that cannot be loaded.

use std::fs;
use std::time::Duration;

use millstream::metrics::Snapshot;
use millstream::server::tls::{TlsBuilder, TlsError};

use super::*;
use testkit::alone;
use testkit::http::{on_both, watched};
use testkit::report::report;

struct Files {
    dir: TempDir,
}

impl Files {
    fn of(identity: &Identity) -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        files.put("cert.pem", &identity.certificate);
        files.put("key.pem", &identity.key);
        files
    }

    fn put(&self, name: &str, contents: &str) {
        let new = self.dir.path().join("new");
        fs::write(&new, contents).unwrap();
        fs::rename(new, self.dir.path().join(name)).unwrap();
    }

    fn builder(&self) -> TlsBuilder {
        Tls::builder().certificate_files(self.dir.path().join("cert.pem"), self.dir.path().join("key.pem"))
    }

    fn tls(&self) -> Tls {
        self.builder().build().unwrap()
    }
}

async fn shown(addr: SocketAddr) -> CertificateDer<'static> {
    // A client without tickets, so that no session is resumed.
    let stream = connect(addr, &client(BOTH, &["http/1.1"])).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[test]
fn new_connections_get_a_good_certificate_and_bad_ones_change_nothing() {
    on_both(async || {
        let [first, second] = &*IDENTITIES;
        let files = Files::of(first);
        let tls = files.tls();
        let server = Server::start(tls.clone()).await;
        let handle = tls;
        let mut old = Raw::over(connect(server.addr, &client(BOTH, &["http/1.1"])).await);
        assert_eq!(old.get("/fine").await.1, b"fine");

        files.put("cert.pem", &second.certificate);
        let mismatched = handle.reload().unwrap_err();
        assert!(matches!(mismatched, TlsError::Mismatch(..)), "{mismatched:?}");
        assert!(
            mismatched.to_string().contains("cert.pem") && mismatched.to_string().contains("key.pem: "),
            "{mismatched}"
        );
        assert_eq!(shown(server.addr).await, first.der);

        files.put("key.pem", &second.key);
        handle.reload().unwrap();
        assert_eq!(shown(server.addr).await, second.der);

        for (name, contents, expected) in [
            ("cert.pem", "", "cert.pem: no certificate in it"),
            ("cert.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", "cert.pem: no PEM"),
            (
                "cert.pem",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "cert.pem: certificate 1 does not parse",
            ),
            ("cert.pem", &second.key, "cert.pem: no certificate in it"),
            ("key.pem", "", "key.pem: no private key in it"),
            ("key.pem", &second.certificate, "key.pem: no private key in it"),
            (
                "key.pem",
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "key.pem: the private key cannot be used",
            ),
        ] {
            files.put("cert.pem", &second.certificate);
            files.put("key.pem", &second.key);
            handle.reload().unwrap();
            files.put(name, contents);
            let wrong = handle.reload().unwrap_err().to_string();
            assert!(wrong.contains(expected), "{wrong}; expected {expected}");
            assert_eq!(shown(server.addr).await, second.der, "{expected}");
        }
        fs::remove_file(files.dir.path().join("key.pem")).unwrap();
        let missing = report(&handle.reload().unwrap_err());
        assert!(missing.contains("key.pem: the file cannot be read: No such file"), "{missing}");
        assert_eq!(shown(server.addr).await, second.der);
        assert_eq!(old.get("/fine").await, (200, b"fine".to_vec()));
        assert_eq!(old.io.get_ref().1.peer_certificates().unwrap()[0], first.der);
    });
}

#[test]
fn a_server_looks_at_the_files_by_itself() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let [first, second] = &*IDENTITIES;
        let files = Files::of(first);
        let before = Snapshot::now();
        let server = Server::start(files.builder().reload_every(Duration::from_millis(20)).build().unwrap()).await;
        let counted = |reloads: u64, refused: u64| async move {
            loop {
                let now = Snapshot::now().since(&before);
                if (now.tls_reloads, now.tls_reloads_refused) == (reloads, refused) {
                    return;
                }
                assert!(now.tls_reloads <= reloads && now.tls_reloads_refused <= refused, "{now}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert_eq!(shown(server.addr).await, first.der);
        files.put("cert.pem", &second.certificate);
        // The counter rises once per change, not once per check.
        counted(0, 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(shown(server.addr).await, first.der);
        files.put("key.pem", &second.key);
        counted(1, 1).await;
        assert_eq!(shown(server.addr).await, second.der);
        // A missing file is one change, its return another.
        fs::remove_file(files.dir.path().join("key.pem")).unwrap();
        counted(1, 2).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        files.put("key.pem", &second.key);
        counted(2, 2).await;
        assert_eq!(shown(server.addr).await, second.der);
        let task = server.task.clone();
        drop(server);
        while !task.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for identity in [first, second, first, second, first] {
            files.put("key.pem", &identity.key);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // A look that had begun may have seen one of the changes.
        let now = Snapshot::now().since(&before);
        assert!(now.tls_reloads + now.tls_reloads_refused <= 5, "{now}");
    });
}

#[test]
fn texts_are_told_apart_and_files_are_only_read_where_there_are_some() {
    watched(|| {
        let [first, second] = &*IDENTITIES;
        let wrong = Tls::from_pem(&first.certificate, &second.key).unwrap_err();
        assert!(matches!(wrong, TlsError::Mismatch(..)), "{wrong:?}");
        let wrong = Tls::from_pem("", &second.key).unwrap_err().to_string();
        assert!(wrong.starts_with("the certificate's PEM text: no certificate in it"), "{wrong}");
        let wrong = Tls::from_files("no-such-file", "no-such-key").unwrap_err().to_string();
        assert!(wrong.starts_with("no-such-file: "), "{wrong}");
        let tls = first.tls();
        assert!(matches!(tls.reload(), Err(TlsError::NoFiles)));
        let kept = Tls::from_config(tls.config());
        assert!(kept.replace_pem(&first.certificate, &second.key).is_err());
        assert!(Arc::ptr_eq(&kept.config(), &tls.config()));
        kept.replace_pem(&second.certificate, &second.key).unwrap();
        assert_eq!(kept.config().alpn_protocols, tls.config().alpn_protocols);
        assert!(!Arc::ptr_eq(&kept.config(), &tls.config()));
    });
}
