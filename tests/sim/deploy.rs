//! A deploy: a second server takes the connections of the first one, and a second hub its events and its readers. No client
//! notices it.

use std::future::pending;
use std::io;
use std::iter::from_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream::net::{Accept, UnixListener};
use millstream::server::Drained;
use millstream::sse::{Event, Hub};
use testkit::serving::{any, serve};
use testkit::sim::{Pace, Profile, Wire, bytes_of};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{sleep, timeout};
use tower::service_fn;

use crate::decode::{Decoder, Form};
use crate::ground::{Given, Running};
use crate::probe::taken;
use crate::publish::{send, text};
use crate::service::Service;
use crate::world::{Tags, World};

/// Connections of the deploy, some of which are readers, and one of which has sent nothing.
const CONNECTIONS: usize = 6;
/// The longest time for which a connection does nothing before.
const IDLE: Duration = Duration::from_secs(10);
/// Time in which what was sent has come.
const SLACK: Duration = Duration::from_millis(500);

/// The connections of another server, whose readers go on with the events of the next hub.
struct Adopted {
    listener: UnixListener,
    given: Mutex<Receiver<Given>>,
    from: Hub,
    to: Hub,
}

impl Accept for Adopted {
    type Stream = <UnixListener as Accept>::Stream;
    type Addr = <UnixListener as Accept>::Addr;

    async fn accept(&self) -> io::Result<(Self::Stream, Self::Addr)> {
        let Some((socket, events)) = self.given.lock().await.recv().await else { return pending().await };
        let adopted = self.listener.adopt(socket.into())?;
        if let Some(events) = events {
            let description = self.from.describe(&events).expect("a reader of the hub");
            self.to.resume(&description)?.go_on(&adopted.0.handle());
        }
        Ok(adopted)
    }
}

/// A reader of events.
struct Reader {
    wire: Wire,
    decoder: Decoder,
    got: Vec<u8>,
    next: u64,
}

impl Reader {
    async fn begin(world: &World, mut wire: Wire, form: Form, tag: u64) -> Self {
        let text = format!("GET /{}/{tag} HTTP/1.1\r\nHost: mill\r\n{}\r\n", form.path(), form.fields());
        let _ = wire.send(text.as_bytes()).await;
        if !wire.head().await.is_ok_and(|head| form.is_right(&head, world.terms.hub.gzip)) {
            world.fault(wire.io.link(), "no events before a deploy");
        }
        let decoder = Decoder::new(form, world.terms.hub.gzip);
        Self { wire, decoder, got: Vec::new(), next: world.published.lock().unwrap().len() }
    }

    /// Expects all events before `until`, each once and in order.
    async fn expect(&mut self, world: &World, until: u64) {
        while let Ok(chunk) = timeout(SLACK, self.wire.chunk()).await {
            let decoded = chunk.map(|chunk| self.decoder.add(&chunk, &mut self.got));
            if decoded != Ok(Ok(())) {
                return world.fault(self.wire.io.link(), format_args!("{decoded:?} within the events of a deploy"));
            }
        }
        let got = String::from_utf8(std::mem::take(&mut self.got)).expect("text");
        for data in got.lines().filter_map(|line| line.strip_prefix("data: ")) {
            if data != text(self.next) {
                world.fault(self.wire.io.link(), format_args!("{data:?} in place of event {}", self.next));
            }
            self.next += 1;
        }
        if self.next != until {
            world.fault(self.wire.io.link(), format_args!("events until {}, not {until}, in a deploy", self.next));
        }
    }
}

/// Moves new connections to another server, and ends that. `drain` lets the first one drain.
pub(crate) async fn deploy(
    world: &Arc<World>,
    (from, service): (&Hub, Service),
    given: Receiver<Given>,
    drain: impl AsyncFnOnce(),
    server: Running,
) -> Option<Drained> {
    let tags = Tags::new(u64::from(u16::MAX) + 3);
    let mut wires = Vec::new();
    while wires.len() + 1 < CONNECTIONS {
        wires.push(taken(world, &tags, 200).await?);
    }
    let forms = [Form::Plain, Form::Gzip];
    let mut readers = Vec::new();
    for form in forms.into_iter().take(world.terms.hub.subscribers) {
        readers.push(Reader::begin(world, wires.pop()?, form, tags.next()).await);
    }
    // The first events pass the layers.
    for _ in 0..3 {
        send(world, from).await;
        sleep(SLACK).await;
    }
    let to = world.terms.hub.build().await;
    let is_first = to.expect_predecessor();
    let mut handover = from.hand_over().filter(|_| is_first).expect("the first deploy");
    let events = from_fn(|| handover.ring_event().expect("the ring")).collect();
    to.prepend(handover.before(), events).expect("the events of a hub");

    let path = format!("\0millstream-sim-deploy-{}-{}", std::process::id(), world.net.now());
    let listener = UnixListener::bind(&path).await.expect("a name of its own");
    let adopted = Adopted { listener, given: Mutex::new(given), from: from.clone(), to: to.clone() };
    let service = service.of(&to);
    let service = any(service_fn(move |request| service.clone().answer(request)));
    let (drains, drained) = oneshot::channel::<()>();
    let deadline = Duration::from_millis(world.terms.deadline);
    let next = tokio::spawn(serve(adopted, service).limits(world.terms.limits()).drain(drained, deadline));

    // Idle connections give their memory back, and one has sent nothing. No reader reaches its age.
    sleep(Duration::from_millis(world.terms.keep_alive / 2).min(IDLE)).await;
    let socket = world.connector.connect(IpAddr::from([192, 0, 2, 1]), Profile::default()).await;
    wires.push(Wire::new(socket.expect("a server that listens"), Pace::FAST));
    // One has a request in progress.
    // Its service does not choose the framing: such a connection does not move.
    let late = [tags.next(), tags.next()].into_iter().find(|tag| !tag.is_multiple_of(2)).expect("an odd one");
    let _ = wires[0].send(format!("GET /late/{late}/2000 HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
    sleep(SLACK).await;
    drain().await;
    for _ in 0..2 {
        send(world, from).await;
        sleep(SLACK).await;
        let event = handover.next_event().expect("the ring").expect("the event that was sent");
        to.import(event).expect("an open hub");
    }
    handover.seal();
    let first = server.await.expect("no panic").expect("no error");
    handover.finish();
    if (first.moved, first.connections) != (CONNECTIONS, CONNECTIONS) {
        world.fault(0, format_args!("not all connections have moved: {first:?}"));
    }
    answered(world, &mut wires[0], late).await;
    for wire in &mut wires {
        let tag = tags.next();
        let _ = wire.send(format!("GET /gone/{tag} HTTP/1.1\r\nHost: mill\r\n\r\n").as_bytes()).await;
        answered(world, wire, tag).await;
    }
    let sent = world.published.lock().unwrap().len();
    to.send(Event::new().data(text(sent))).expect("an event that fits");
    for reader in &mut readers {
        reader.expect(world, sent + 1).await;
    }
    drains.send(()).expect("a server that waits for the signal");
    let second = next.await.expect("no panic").expect("no error");
    if (second.connections, second.aborted) != (CONNECTIONS, 0) {
        world.fault(0, format_args!("not the connections that have moved: {second:?}"));
    }
    None
}

/// Expects a small answer, which does not announce an end.
async fn answered(world: &World, wire: &mut Wire, tag: u64) {
    let head = wire.head().await;
    let body = match &head {
        Ok(head) if head.status == 200 && !head.closes() => wire.body(head).await.bytes,
        _ => Vec::new(),
    };
    if body != bytes_of(tag, 5) {
        world.fault(wire.io.link(), format_args!("not the answer to request {tag} in a deploy: {head:?}"));
    }
}
