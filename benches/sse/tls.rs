//! One event for a thousand readers over TLS 1.3, fifty times a second: the server's cost for each delivery.
//!
//! | row | |
//! |---|---|
//! | millstream Hub | [`Hub`] on [`server::serve`](millstream::server::serve()) with TLS |
//! | millstream Hub, by tasks | the same with `BoxBody`: each reader has a task |
//! | millstream Hub, without TLS | the same without TLS |
//! | axum Sse | axum behind `tokio-rustls`, each stream with a receiver of one `tokio::sync::broadcast` |
//! | floor, sealed and sent | a bare loop on blocking sockets: rustls seals the event, `send` sends it |
//! | floor, sealed | rustls seals the event a thousand times, nothing else |
//!
//! The events and the servers are those of `hub`.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use millstream::server::tls::Tls;
use millstream::sse::{EventBody, Hub};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::hub::{PACE, axum_events, event, hub, serve_hub, ticking};
use super::readers::{counted, floor_with, measure, measure_tls};
use crate::common::contest::{By, Case, Contender, Goal, Spent};
use crate::common::server::Server;
use crate::common::suite::Suite;

struct Keys {
    certificate: Vec<u8>,
    tls: Tls,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["bench".to_owned()]).unwrap();
    let (cert, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let key = PrivateKeyDer::try_from(key).unwrap();
    Keys {
        tls: Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap(),
        server: Arc::new(testkit::tls::server().with_single_cert(vec![cert.clone()], key).unwrap()),
        client: client(&cert),
        certificate: cert.to_vec(),
    }
});

async fn direct(listener: TcpListener) -> io::Result<()> {
    serve_hub(listener, ticking(Hub::new()), |body| body, true, Some(tls())).await
}

async fn by_tasks(listener: TcpListener) -> io::Result<()> {
    serve_hub(listener, ticking(Hub::new()), EventBody::boxed_unsync, true, Some(tls())).await
}

async fn axum_tls(listener: TcpListener) -> io::Result<()> {
    serve_axum(listener, axum_events()).await
}

/// Serves an app of axum behind `tokio-rustls`.
pub(super) async fn serve_axum(listener: TcpListener, app: axum::Router) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (socket, _) = listener.accept().await?;
        let service = TowerToHyperService::new(app.clone());
        tokio::spawn(async move {
            // The load closes connections at its end.
            let Ok(stream) = TlsAcceptor::from(Arc::clone(&KEYS.server)).accept(socket).await else { return };
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Returns the keys of a server of this process.
pub(super) fn tls() -> Tls {
    KEYS.tls.clone()
}

/// Returns the certificate of [`tls`], in DER form.
pub(super) fn certificate() -> &'static [u8] {
    &KEYS.certificate
}

/// Returns a client that trusts a certificate in DER form.
pub(super) fn client(certificate: &[u8]) -> Arc<ClientConfig> {
    Arc::new(testkit::tls::client([certificate.to_vec().into()]).with_no_client_auth())
}

/// Seals events on a connection in memory.
fn sealed(events: u64) -> Spent {
    let mut server = ServerConnection::new(Arc::clone(&KEYS.server)).unwrap();
    let mut client = ClientConnection::new(Arc::clone(&KEYS.client), "bench".try_into().unwrap()).unwrap();
    let mut records = Vec::new();
    while server.is_handshaking() || client.is_handshaking() {
        records.clear();
        while client.wants_write() {
            client.write_tls(&mut records).unwrap();
        }
        server.read_tls(&mut &records[..]).unwrap();
        server.process_new_packets().unwrap();
        records.clear();
        while server.wants_write() {
            server.write_tls(&mut records).unwrap();
        }
        client.read_tls(&mut &records[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    let (event, mut spent) = (event(), Spent::default());
    spent.on_this_thread(|| {
        for _ in 0..events {
            records.clear();
            server.writer().write_all(&event).unwrap();
            server.write_tls(&mut records).unwrap();
        }
    });
    spent
}

pub(crate) fn run(suite: &mut Suite) {
    let title = format!("hub over TLS, one event, {} readers x {} Hz", PACE.streams(), PACE.hz);
    let goal = |against, most| Goal { against, by: By::Cpu, most };
    let goals = [goal("axum Sse", 0.80), goal("floor, sealed and sent", 1.10)];
    let case = Case { operations: Some(PACE.events()), goals: &goals, ..Case::new(&title, "CPU us/delivery", 1) };
    let over_tls = |addr, events| measure_tls(addr, PACE, &event(), &KEYS.client, events);
    suite.run(&case, || {
        vec![
            counted("millstream Hub", |events| over_tls(Server::start(direct).addr, events)),
            counted("millstream Hub, by tasks", |events| over_tls(Server::start(by_tasks).addr, events)),
            counted("millstream Hub, without TLS", |events| measure(Server::start(hub).addr, PACE, &event(), events)),
            Contender::new("axum Sse", |events| over_tls(Server::start(axum_tls).addr, events).0),
            Contender::new("floor, sealed and sent", |events| {
                let wrap = |socket: TcpStream| {
                    StreamOwned::new(ServerConnection::new(Arc::clone(&KEYS.server)).unwrap(), socket)
                };
                floor_with(PACE, &event(), wrap, |addr| over_tls(addr, events).0)
            }),
            Contender::new("floor, sealed", sealed),
        ]
    });
}
