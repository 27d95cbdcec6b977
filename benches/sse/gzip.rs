//! One event of 1 KiB for a thousand readers, ten times a second: the server's cost for each delivery.
//!
//! | row | |
//! |---|---|
//! | millstream Hub, gzip | a hub with [`HubBuilder::gzip`](millstream::sse::HubBuilder::gzip): compressed once |
//! | millstream Hub, plain | the same hub, to readers that do not accept gzip |
//! | compressed each | [`body::Compress`](millstream::body::Compress) around the body of each reader, at the same level |
//!
//! The event is a list of quotes in JSON, of the same length with other numbers in each tick. The load decodes what it
//! reads. Each server is a current-thread runtime on its own thread and CPU.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;

use millstream::body::{Compress, ContentCoding};
use millstream::sse::{Event, Hub};
use tokio::time::{MissedTickBehavior, interval};

use super::readers::{Content, Pace, counted, measure_content};
use crate::common::contest::{By, Case, Goal};
use crate::common::server::Server;
use crate::common::suite::Suite;

/// Events per second, few enough that each reader's own encoder keeps up.
const PACE: Pace = Pace::new(1000, 10);

/// Events of a turn: a second of all streams.
const EVENTS: u64 = 10_000;

const LEVEL: u32 = 6;

/// As long as the ids of the hub.
const ID: &str = "0123abcd-100000";

fn data(tick: u32) -> String {
    let quote = |n: u32| {
        let random = tick.wrapping_mul(2_654_435_761).wrapping_add(n.wrapping_mul(40_503)).wrapping_mul(2_246_822_519);
        let (bid, size) = (10_000 + random % 80_000, 100 + (random >> 8) % 900);
        format!("{{\"symbol\":\"MILL{n:02}\",\"bid\":{bid}.25,\"ask\":{}.50,\"size\":{size}}}", bid + 1)
    };
    let quotes: Vec<String> = (0..16).map(quote).collect();
    format!("{{\"tick\":{:010},\"quotes\":[{}]}}", tick, quotes.join(","))
}

fn event_len() -> usize {
    format!("data: {}\nid: {ID}\n\n", data(0)).len()
}

async fn serve(listener: TcpListener, each: bool) -> io::Result<()> {
    let builder = Hub::builder();
    let hub = if each { builder.build() } else { builder.gzip(LEVEL).build() };
    let sender = hub.clone();
    tokio::spawn(async move {
        let mut ticks = interval(PACE.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for tick in 0.. {
            ticks.tick().await;
            // The hub is closed at the end of the turn.
            let _ = sender.send(Event::new().data(data(tick)).id(ID));
        }
    });
    let listener = millstream::net::TcpListener::from_std(listener)?;
    if !each {
        let service = tower::service_fn(move |request| {
            let answer = hub.subscribe(&request);
            async { Ok::<_, Infallible>(answer) }
        });
        return millstream::server::serve(listener, service).await;
    }
    let service = tower::service_fn(move |request| {
        let mut answer = hub.subscribe(&request);
        answer.headers_mut().insert("content-encoding", http::HeaderValue::from_static("gzip"));
        let answer = answer.map(|body| Compress::with_level(body, ContentCoding::Gzip, LEVEL));
        async { Ok::<_, Infallible>(answer) }
    });
    millstream::server::serve(listener, service).await
}

pub(crate) fn run(suite: &mut Suite) {
    let len = event_len();
    let title = format!("hub, one event of {len} bytes, {} readers x {} Hz, gzip", PACE.streams(), PACE.hz);
    let goal = |against, most| Goal { against, by: By::Cpu, most };
    let goals = [goal("millstream Hub, plain", 1.30), goal("compressed each", 0.30)];
    let case = Case { operations: Some(EVENTS), goals: &goals, ..Case::new(&title, "CPU us/delivery", 1) };
    suite.run(&case, || {
        let start = |each| Server::start(move |listener| serve(listener, each));
        vec![
            counted("millstream Hub, gzip", move |events| {
                measure_content(start(false).addr, PACE, Content::Gzip(len), events)
            }),
            counted("millstream Hub, plain", move |events| {
                measure_content(start(false).addr, PACE, Content::Plain(len), events)
            }),
            counted("compressed each", move |events| {
                measure_content(start(true).addr, PACE, Content::Gzip(len), events)
            }),
        ]
    });
}
