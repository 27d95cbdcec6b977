//! One event for a thousand readers, fifty times a second: the server's cost for each delivery.
//!
//! | row | |
//! |---|---|
//! | millstream Hub | [`Hub`] on [`server::serve`](millstream::server::serve()), sent to from a task of the server |
//! | millstream Hub, other thread | the same, sent to from a thread without a runtime |
//! | millstream Hub, boxed body | the same with `BoxBody`: each reader has a task |
//! | millstream Hub, past layers | the same with `BoxBody` and [`past_layers`](millstream::sse::HubBuilder::past_layers) |
//! | millstream Hub, by hyper | the same without takeover |
//! | axum Sse | `axum::serve` on tokio's listener, each stream with a receiver of one `tokio::sync::broadcast` |
//! | floor | a bare loop of `send` on blocking sockets, nothing else |
//!
//! All send the same bytes, an event of 100 bytes with its id, as chunks of HTTP/1.1 with `TCP_NODELAY`. Each server is
//! a current-thread runtime on its own thread and CPU; the load is this program's main thread, and compares every byte.
//! The row of the other thread includes the CPU time of that thread.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::time::Instant;

use axum::response::sse::{self, Sse};
use futures_util::stream;
use http_body::Body;
use http_body_util::BodyExt;
use millstream::metrics::Snapshot;
use millstream::server::tls::Tls;
use millstream::sse::{Event, EventBody, Hub};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};

use super::readers::{Pace, counted, floor, measure};
use crate::common::contest::{By, Case, Contender, Goal, Spent};
use crate::common::server::{Server, spawn};
use crate::common::suite::Suite;

/// As long as the ids of the hub.
const ID: &str = "0123abcd-100000";

/// A pace that the slowest row keeps on a core: a server that falls behind sends several events in a call.
pub(super) const PACE: Pace = Pace::new(1000, 50);

pub(super) fn data() -> String {
    "x".repeat(100)
}

pub(super) fn event() -> Vec<u8> {
    format!("data: {}\nid: {ID}\n\n", data()).into_bytes()
}

pub(super) async fn tick(mut send: impl FnMut()) {
    let mut ticks = interval(PACE.period());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        send();
    }
}

pub(super) fn send(hub: &Hub) {
    // The hub is closed at the end of the turn.
    let _ = hub.send(Event::new().data(data()).id(ID));
}

pub(super) async fn serve_hub<B>(
    listener: TcpListener,
    hub: Hub,
    wrap: fn(EventBody) -> B,
    takeover: bool,
    tls: Option<Tls>,
) -> io::Result<()>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let listener = millstream::net::TcpListener::from_std(listener)?;
    let service = tower::service_fn(move |request| {
        let answer = hub.subscribe(&request).map(wrap);
        async { Ok::<_, Infallible>(answer) }
    });
    let server = millstream::server::serve(listener, service).takeover(takeover);
    match tls {
        Some(tls) => server.tls(tls).await,
        None => server.await,
    }
}

/// Makes an event of a hub in each tick, in a task.
pub(super) fn ticking(hub: Hub) -> Hub {
    let sender = hub.clone();
    tokio::spawn(tick(move || send(&sender)));
    hub
}

pub(super) async fn hub(listener: TcpListener) -> io::Result<()> {
    serve_hub(listener, ticking(Hub::new()), |body| body, true, None).await
}

async fn boxed(listener: TcpListener) -> io::Result<()> {
    serve_hub(listener, ticking(Hub::new()), EventBody::boxed_unsync, true, None).await
}

async fn past_layers(listener: TcpListener) -> io::Result<()> {
    let hub = Hub::builder().past_layers(true).build();
    serve_hub(listener, ticking(hub), EventBody::boxed_unsync, true, None).await
}

async fn by_hyper(listener: TcpListener) -> io::Result<()> {
    serve_hub(listener, ticking(Hub::new()), |body| body, false, None).await
}

async fn axum_sse(listener: TcpListener) -> io::Result<()> {
    axum::serve(tokio::net::TcpListener::from_std(listener)?, axum_events()).await
}

/// An app of axum with an event in each tick.
pub(super) fn axum_events() -> axum::Router {
    let (sender, _) = broadcast::channel::<String>(1000);
    let events = sender.clone();
    tokio::spawn(tick(move || drop(events.send(data()))));
    axum_app(sender)
}

/// An app of axum with the events of a sender.
pub(super) fn axum_app(sender: broadcast::Sender<String>) -> axum::Router {
    let answer = move || {
        let receiver = sender.subscribe();
        let events = stream::unfold(receiver, async |mut receiver| {
            loop {
                match receiver.recv().await {
                    Ok(data) => return Some((Ok::<_, Infallible>(sse::Event::default().data(data).id(ID)), receiver)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        async { Sse::new(events) }
    };
    axum::Router::new().route("/events", axum::routing::get(answer))
}

/// Measures the hub with a sender on its own thread, which ends with the hub.
fn measure_from_outside(events: u64) -> (Spent, Snapshot) {
    let hub = Hub::new();
    let sender = hub.clone();
    let thread = spawn(move || {
        let mut tick = Instant::now();
        while sender.send(Event::new().data(data()).id(ID)).is_ok() {
            tick += PACE.period();
            std::thread::park_timeout(tick.saturating_duration_since(Instant::now()));
        }
    });
    let served = hub.clone();
    let server = Server::start(|listener| serve_hub(listener, served, |body| body, true, None));
    let measured = measure(server.addr, PACE, &event(), events);
    hub.close();
    thread.join().unwrap();
    measured
}

pub(crate) fn run(suite: &mut Suite) {
    let title = format!("hub, one event, {} readers x {} Hz", PACE.streams(), PACE.hz);
    let goal = |against, most| Goal { against, by: By::Cpu, most };
    let goals = [goal("axum Sse", 0.80), goal("floor, bare sends", 1.08)];
    let case = Case { operations: Some(PACE.events()), goals: &goals, ..Case::new(&title, "CPU us/delivery", 1) };
    suite.run(&case, || {
        vec![
            counted("millstream Hub", |events| measure(Server::start(hub).addr, PACE, &event(), events)),
            counted("millstream Hub, other thread", measure_from_outside),
            counted("millstream Hub, boxed body", |events| measure(Server::start(boxed).addr, PACE, &event(), events)),
            counted("millstream Hub, past layers", |events| {
                measure(Server::start(past_layers).addr, PACE, &event(), events)
            }),
            counted("millstream Hub, by hyper", |events| measure(Server::start(by_hyper).addr, PACE, &event(), events)),
            Contender::new("axum Sse", |events| measure(Server::start(axum_sse).addr, PACE, &event(), events).0),
            Contender::new("floor, bare sends", |events| floor(PACE, &event(), events)),
        ]
    });
}
