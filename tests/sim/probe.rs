//! Questions to a server behind its clients: whether all places are free, and whether hubs write to connections.

use std::net::IpAddr;
#[cfg(not(portable))]
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use millstream::sse::{Hub, LagPolicy};
use testkit::sim::{Dice, Ended, Pace, Profile, Socket, Wire, bytes_of};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::decode::Form;
#[cfg(not(portable))]
use crate::line::LONGEST_PIECE;
use crate::publish;
#[cfg(not(portable))]
use crate::terms::FAST;
use crate::world::{Tags, World};

/// The rate of a probe, in bytes a second.
#[cfg(not(portable))]
const PACE: NonZeroU64 = NonZeroU64::new(100_000).unwrap();
/// Time in which what was sent has come.
const SLACK: u64 = 100;
/// The most bytes that a connection of a probe holds: those of the simulated link, of the kernel, and of the server.
const HELD: usize = 1 << 20;

/// Takes all places at once: none may be taken by a connection that has ended. There are no more, until one is given back.
pub(crate) async fn places(world: &World) -> Vec<Wire> {
    let tags = Tags::new(u64::from(u16::MAX));
    let mut wires = Vec::new();
    for _ in 0..world.terms.places {
        wires.extend(taken(world, &tags, 200).await);
    }
    taken(world, &tags, 503).await;
    wires.pop();
    // The server has noticed that a client has left.
    sleep(Duration::from_secs(1)).await;
    wires.extend(taken(world, &tags, 200).await);
    wires
}

/// Connects at once. The connection waits for the listener, which accepts it although a drain begins in this moment. Returns the
/// rest of the probe.
pub(crate) async fn waiting(world: &Arc<World>) -> impl Future<Output = ()> + Send + 'static {
    let profile = Profile { latency: 0, ..Profile::default() };
    let connected = poll_immediate(world.connector.connect(IpAddr::from([192, 0, 2, 2]), profile)).await;
    let socket = connected.and_then(Result::ok).filter(|socket| socket.others() < world.terms.places);
    let world = Arc::clone(world);
    async move {
        if let Some(socket) = socket {
            served(&world, socket, &Tags::new(u64::from(u16::MAX) + 2), 200).await;
        }
    }
}

/// Connects, and expects an answer of the service, or that the server is full.
pub(crate) async fn taken(world: &World, tags: &Tags, status: u16) -> Option<Wire> {
    let socket = world.connector.connect(IpAddr::from([192, 0, 2, 1]), Profile::default()).await;
    served(world, socket.expect("a server that listens"), tags, status).await
}

async fn served(world: &World, socket: Socket, tags: &Tags, status: u16) -> Option<Wire> {
    let mut wire = match &world.seals {
        None => Wire::new(socket, Pace::FAST),
        Some(seals) => match seals.connect(&mut Dice::new(0), socket, false).await {
            Ok(stream) => Wire::new(stream, Pace::FAST),
            // Without a handshake there is no answer.
            Err((_, socket)) if status == 503 && (socket.is_reset() || !world.terms.resets) => return None,
            Err((error, socket)) => {
                world.fault(socket.link(), format_args!("not {status}: {error}"));
                return None;
            }
        },
    };
    let tag = tags.next();
    let _ = wire.send(format!("GET /fixed/{tag}/5 HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
    match wire.head().await {
        Ok(head) if head.status == status && status == 200 => {
            let body = wire.body(&head).await;
            if body.bytes != bytes_of(tag, 5) {
                world.fault(wire.io.link(), "a wrong body");
            }
            return Some(wire);
        }
        Ok(head) if head.status == status && head.closes() => {
            world.calls.forbid(tag);
            if let (_, Ended::Reset) = wire.end().await {
                world.fault(wire.io.link(), "a refused connection was reset");
            }
        }
        other => world.fault(wire.io.link(), format_args!("not {status}: {other:?}")),
    }
    None
}

/// Bytes that arrive while the last response is made do not reset the connection: the client gets all of it, and an end.
pub(crate) async fn behind(world: &World, mut wire: Wire) {
    let (tags, link) = (Tags::new(u64::from(u16::MAX) + 4), wire.io.link());
    let (tag, hidden) = (tags.next(), tags.next());
    world.calls.forbid(hidden);
    let request =
        |path: String, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: mill\r\n{fields}\r\n").into_bytes();
    let _ = wire.send(&request(format!("/late/{tag}/1000"), "Connection: close\r\n")).await;
    sleep(Duration::from_millis(SLACK)).await;
    let _ = wire.send(&request(format!("/fixed/{hidden}/5"), "")).await;
    let head = wire.head().await;
    let body = match &head {
        Ok(head) => wire.body(head).await.bytes,
        Err(_) => Vec::new(),
    };
    let ended = wire.end().await.1;
    if body != bytes_of(tag, 5) || ended == Ended::Reset {
        world.fault(link, format_args!("{ended:?} behind {} bytes of the last answer, {head:?}", body.len()));
    }
}

/// A response takes as long as its bytes take at the rate of all connections.
#[cfg(not(portable))]
async fn paced(world: &World, wire: &mut Wire) {
    let Some(pace) = &world.terms.pace else { return };
    pace.set(PACE);
    for len in [400_000, 100_000] {
        let tag = Tags::new(u64::from(u16::MAX) + 8 + len).next();
        let _ = wire.send(format!("GET /fixed/{tag}/{len} HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
        let began = world.net.now();
        let body = match wire.head().await {
            Ok(head) => wire.body(&head).await.bytes,
            Err(_) => Vec::new(),
        };
        let (took, due) = (world.net.now() - began, len * 1_000 / PACE.get());
        // The bytes of a tenth of a second, and those of one call, leave before their time: what the socket and the pipe of
        // a `sendfile` hold. The next ones wait for it.
        let early = 100 + (2 * world.terms.send_buffer as u64 + LONGEST_PIECE) * 1_000 / PACE.get();
        let is_right = (due.saturating_sub(early + SLACK)..=due + early + SLACK).contains(&took);
        if body != bytes_of(tag, len as usize) || !is_right {
            world.fault(wire.io.link(), format_args!("{} of {len} bytes in {took} ms, not {due} ms", body.len()));
        }
    }
    pace.set(FAST);
}

/// The events of a hub end with it, behind those that were sent.
pub(crate) async fn brief(world: &World, wire: &mut Wire) {
    let tag = Tags::new(u64::from(u16::MAX) + 5).next();
    let _ = wire.send(format!("GET /brief/{tag} HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
    let answer = async {
        let head = wire.head().await.ok()?;
        Some(wire.body(&head).await.bytes)
    };
    let body = timeout(Duration::from_millis(SLACK), answer).await;
    if !matches!(&body, Ok(Some(body)) if String::from_utf8_lossy(body).contains("data: brief\n")) {
        world.fault(wire.io.link(), format_args!("{body:?} of a hub that is dropped"));
    }
}

/// A sender gives up a reader that takes nothing, and it gets no further event.
pub(crate) async fn given_up(world: &World, hub: &Hub, wire: &mut Wire) {
    let terms = &world.terms.hub;
    if terms.policy != LagPolicy::Block || terms.past_layers || terms.max_age.is_some() || world.closed_at().is_some() {
        return;
    }
    let tags = Tags::new(u64::from(u16::MAX) + 6);
    // The service does not watch the first one.
    let tag = [tags.next(), tags.next()][1];
    let _ = wire.send(format!("GET /events/{tag} HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
    if !wire.head().await.is_ok_and(|head| Form::Plain.is_right(&head, terms.gzip)) {
        world.fault(wire.io.link(), "no events for a reader that takes none");
    }
    let (began, mut bytes) = (world.net.now(), 0);
    while world.gave_up_at() <= began && bytes < 4 * HELD {
        bytes += publish::text(world.published.lock().unwrap().len()).len();
        publish::send(world, hub).await;
        for _ in 0..4 {
            yield_now().await;
        }
    }
    if world.gave_up_at() <= began {
        world.fault(
            wire.io.link(),
            format_args!("no sender waits for a reader that has taken nothing of {bytes} bytes"),
        );
    }
    while let Ok(Ok(chunk)) = timeout(Duration::from_millis(SLACK), wire.chunk()).await {
        if chunk.is_empty() {
            return;
        }
    }
    world.fault(wire.io.link(), "the events of a reader that was given up do not end");
}

/// Returns a connection with a request that is not answered before the deadline of a drain. It takes the place of another.
pub(crate) async fn busy(world: &World, probes: &mut Vec<Wire>) -> Option<Wire> {
    probes.pop();
    sleep(Duration::from_secs(1)).await;
    let tags = Tags::new(u64::from(u16::MAX) + 7);
    let mut wire = taken(world, &tags, 200).await?;
    #[cfg(not(portable))]
    paced(world, &mut wire).await;
    let (tag, late) = (tags.next(), world.terms.deadline + 10_000);
    let _ = wire.send(format!("GET /late/{tag}/{late} HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
    sleep(Duration::from_millis(SLACK)).await;
    Some(wire)
}

/// On sockets of the kernel, the hub writes to the connections of its readers itself, in each form, if it may.
pub(crate) async fn direct_writes(world: &World, hub: &Hub, wires: &mut Vec<Wire>) {
    let terms = &world.terms.hub;
    if !(terms.past_layers && world.terms.takes_over && world.closed_at().is_none()) {
        return;
    }
    let forms = [Form::Plain, Form::Gzip, Form::Lines, Form::Layered];
    let count = terms.subscribers.min(forms.len()).min(wires.len());
    let tags = Tags::new(u64::from(u16::MAX) + 1);
    for (wire, form) in wires.iter_mut().zip(forms).take(count) {
        let text = format!("GET /{}/{} HTTP/1.1\r\nHost: mill\r\n{}\r\n", form.path(), tags.next(), form.fields());
        let _ = wire.send(text.as_bytes()).await;
        if !wire.head().await.is_ok_and(|head| form.is_right(&head, terms.gzip)) {
            world.fault(wire.io.link(), format_args!("no events: {form:?}"));
        }
    }
    // The first events pass the layers.
    for _ in 0..3 {
        sleep(Duration::from_millis(500)).await;
        publish::send(world, hub).await;
    }
    sleep(Duration::from_millis(500)).await;
    let (stats, is_layered) = (hub.stats(), usize::from(count == forms.len()));
    if (stats.subscribers, stats.direct) != (count, count - is_layered) {
        world.fault(0, format_args!("not {count} readers, to which the hub writes: {stats:?}"));
    }
    if terms.max_age.is_none() {
        comments(world, hub, &mut wires[0]).await;
    }
    // A log takes a millisecond for each event.
    if terms.log.is_none() || world.terms.write_stall > 10_000 {
        stalled(world, hub, &mut wires[0]).await;
        // The others have taken nothing, too.
        wires.drain(..count);
    }
}

/// A reader that takes nothing gets no more than its connection and the queue hold: it is told that it misses events, or its
/// stream ends.
async fn stalled(world: &World, hub: &Hub, wire: &mut Wire) {
    let (began, mut bytes, mut left) = (world.net.now(), 0, world.terms.hub.queue + 1);
    while left > 0 {
        let number = world.published.lock().unwrap().len();
        publish::send(world, hub).await;
        // The task of the hub writes each event, as far as a reader takes it.
        for _ in 0..4 {
            yield_now().await;
        }
        bytes += publish::text(number).len();
        left -= u64::from(bytes > HELD);
    }
    world.net.note(wire.io.link(), "has read nothing of bytes", bytes as u64);
    let mut got = 0;
    loop {
        match timeout(Duration::from_millis(SLACK), wire.chunk()).await {
            Ok(Ok(chunk)) if chunk.is_empty() || chunk.starts_with(b"event: gap\n") => return,
            Ok(Ok(chunk)) => got += chunk.len(),
            // The senders have waited for so long that the connection was reset.
            Ok(Err(_)) if world.net.now() >= began + world.terms.write_stall => return,
            ended => {
                let link = wire.io.link();
                return world.fault(link, format_args!("{ended:?} behind {got} bytes of {bytes}, and no gap"));
            }
        }
    }
}

/// A reader to which the hub writes gets a comment after half to all of each silent period.
async fn comments(world: &World, hub: &Hub, wire: &mut Wire) {
    while let Ok(Ok(_)) = timeout(Duration::from_millis(SLACK), wire.chunk()).await {}
    publish::send(world, hub).await;
    // A comment may have been on its way.
    while wire.chunk().await.is_ok_and(|bytes| bytes == b":\n") {}
    // A part of a further request is no end of the client.
    let _ = wire.send(b"GET /gone/0 HTTP/1.1\r\n").await;
    let (period, mut heard) = (world.terms.hub.keep_alive, world.net.now());
    for _ in 0..2 {
        let bytes = wire.chunk().await.unwrap_or_default();
        let silence = world.net.now() - heard;
        heard += silence;
        if bytes != b":\n" || silence + SLACK < period / 2 || silence > period + SLACK {
            let bytes = String::from_utf8_lossy(&bytes).into_owned();
            world.fault(wire.io.link(), format_args!("{bytes:?} after {silence} ms of silence"));
        }
    }
}
