//! TLS records against a server: those of a client that says anything, and those of a client that has shaken hands and goes
//! on in its own way. The connection ends, what is decrypted is a response, and the server goes on.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use millstream::server::tls::Tls;
use millstream_fuzz::service::{GOOD, GOOD_BODY, service};
use millstream_fuzz::{Address, all_closed, http1, pieces, run, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

struct Server {
    address: Address,
    certificate: CertificateDer<'static>,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
    let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
    Server { address: start(service(), |serve| serve.tls(tls)), certificate: made.cert.into() }
});

static CLIENTS: LazyLock<[TlsConnector; 3]> = LazyLock::new(|| {
    let client = |versions: &[&'static SupportedProtocolVersion], alpn: &[u8]| {
        let mut roots = RootCertStore::empty();
        roots.add(SERVER.certificate.clone()).unwrap();
        let mut config =
            ClientConfig::builder_with_protocol_versions(versions).with_root_certificates(roots).with_no_client_auth();
        if !alpn.is_empty() {
            config.alpn_protocols = vec![alpn.to_vec()];
        }
        // Each run begins anew.
        config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        TlsConnector::from(Arc::new(config))
    };
    [client(&[&TLS13], b"http/1.1"), client(&[&TLS12], b""), client(&[&TLS13], b"h2")]
});

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Say(&'a [u8]),
    /// Bytes between the records.
    Raw(&'a [u8]),
    Record {
        kind: u8,
        version: u8,
        payload: &'a [u8],
    },
    KeyUpdate,
    CloseNotify,
    Good,
}

async fn client(which: u8, steps: &[Step<'_>]) {
    let name = ServerName::try_from("mill").unwrap();
    let stream = SERVER.address.connect();
    let connector = &CLIENTS[usize::from(which) % CLIENTS.len()];
    let mut stream = connector.connect(name, stream).await.expect("the server shakes hands");
    let mut is_broken = false;
    let mut plain: Vec<u8> = Vec::new();
    for step in steps {
        let done = match step {
            Step::Say(bytes) => {
                plain.extend_from_slice(bytes);
                stream.write_all(bytes).await
            }
            Step::Good => {
                plain.extend_from_slice(GOOD);
                stream.write_all(GOOD).await
            }
            Step::Raw(bytes) => {
                is_broken = true;
                stream.get_mut().0.write_all(bytes).await
            }
            Step::Record { kind, version, payload } => {
                is_broken = true;
                let mut record = vec![20 + kind % 6, 3, *version];
                record.extend_from_slice(&(payload.len() as u16).to_be_bytes());
                record.extend_from_slice(payload);
                stream.get_mut().0.write_all(&record).await
            }
            Step::KeyUpdate => {
                // Only TLS 1.3 has it.
                let _ = stream.get_mut().1.refresh_traffic_keys();
                Ok(())
            }
            Step::CloseNotify => {
                stream.get_mut().1.send_close_notify();
                stream.flush().await
            }
        };
        if done.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let _ = stream.flush().await;
    let _ = stream.get_mut().0.shutdown().await;
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received).await;
    let is_http2 = which % 3 == 2 || plain.starts_with(b"PRI");
    if !is_broken && end.is_ok() && !is_http2 {
        http1::responses(&received);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else { return };
    run(async {
        match mode % 4 {
            3 => {
                SERVER.address.exchange(&pieces(rest)).await;
                // Not for each run, because it takes most of the time.
                if rest.len() % 16 == 0 {
                    good().await;
                }
            }
            which => {
                let steps = Vec::arbitrary_take_rest(Unstructured::new(rest)).unwrap_or_default();
                client(which, &steps[..steps.len().min(20)]).await;
            }
        }
        all_closed().await;
    });
});

async fn good() {
    let name = ServerName::try_from("mill").unwrap();
    let mut stream = CLIENTS[0].connect(name, SERVER.address.connect()).await.expect("the server shakes hands");
    stream.write_all(GOOD).await.expect("the server reads");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.expect("the server closes");
    assert_eq!(http1::responses(&received)[0].body, GOOD_BODY);
}
