//! A server with its clients, from a seed to the end, and what is counted to zero behind it.

use std::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::server::{Drained, Limits};
use millstream::sse::{Hub, LagPolicy};
use testkit::serving::any;
use testkit::sim::{Dice, Net, SimConnector, SimListener};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::service_fn;

use crate::ground::{Ground, Running};
use crate::hub::{HubTerms, Published, Seen, check_stats};
use crate::patience::Patience;
use crate::refused::{self, BODY_MAX, FIELDS_MAX, HEAD_MAX, URI_MAX};
use crate::seal::Seals;
use crate::service::{Calls, Service};
use crate::{client, clock, probe, publish};

/// Time by which a limit may take effect late, as [`Limits`] says.
pub(crate) const LATE: u64 = 1_000;
/// Time without a byte after which a connection that drains is idle.
pub(crate) const IDLE_IN_DRAIN: u64 = 250;
/// Longer than what is left of a connection whose client has left: a server discards bytes for 30 s.
const PATIENCE: Duration = Duration::from_secs(400);
/// Connections that are allowed, in most worlds more than there are clients.
const PLACES: usize = 200;

/// The limits of a server, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) head_time: u64,
    pub(crate) keep_alive: u64,
    pub(crate) write_stall: u64,
    pub(crate) body_progress: u64,
    pub(crate) half_close: u64,
    pub(crate) deadline: u64,
    /// Connections that are allowed.
    pub(crate) places: usize,
    pub(crate) hub: HubTerms,
    buffer: usize,
    /// Requests of a connection of HTTP/2 at a time, and its windows for bodies.
    pub(crate) streams: u32,
    pub(crate) windows: (u32, u32),
    pub(crate) takes_over: bool,
    /// Bytes that a socket of the kernel takes from the server.
    pub(crate) send_buffer: usize,
    /// Time that a segment takes between the simulated connection and the server.
    pub(crate) hops: u64,
    /// Whether the server can reset a connection so that its client sees it.
    pub(crate) resets: bool,
    /// Whether days pass in which little happens, on connections that are kept for as long.
    pub(crate) is_calm: bool,
    /// Whether the server speaks TLS.
    pub(crate) tls: bool,
}

impl Terms {
    fn choose(mut dice: Dice, ground: Ground, tls: bool) -> Self {
        let is_calm = dice.chance(10) && ground.is_simulated();
        let mut terms = Self {
            head_time: *dice.pick(&[10_000, 2_000]),
            keep_alive: if is_calm { 50_000_000 } else { *dice.pick(&[75_000, 20_000, 6_000]) },
            write_stall: *dice.pick(&[30_000, 5_000]),
            body_progress: *dice.pick(&[30_000, 6_000]),
            half_close: *dice.pick(&[1_000, 5_000]),
            deadline: *dice.pick(&[10_000, 30_000]),
            places: if dice.chance(20) { dice.in_range(2..=8) as usize } else { PLACES },
            hub: HubTerms::choose(dice.fork(1), ground),
            buffer: *dice.pick(&[64 << 10, 8 << 10]),
            streams: *dice.pick(&[100, 100, 3]),
            windows: *dice.pick(&[(3 << 20, 4 << 20), (16 << 10, 64 << 10)]),
            takes_over: dice.chance(80),
            send_buffer: if ground.is_simulated() { usize::MAX } else { *dice.pick(&[4 << 10, 32 << 10, 200 << 10]) },
            hops: ground.hops(),
            resets: ground.is_simulated(),
            is_calm,
            tls,
        };
        if terms.hub.policy == LagPolicy::Block {
            // Readers that stop reading soon hold their senders up.
            terms.buffer = 8 << 10;
        }
        if !ground.is_simulated() {
            // When sockets of the kernel give their places back is not known here.
            terms.places = PLACES;
        }
        terms
    }

    /// Returns the time after which a client that does not read is told that the server has closed the connection.
    pub(crate) fn passed_on(&self) -> u64 {
        if self.resets { 0 } else { 31_000 }
    }

    pub(crate) fn limits(&self) -> Limits {
        let millis = Duration::from_millis;
        Limits::default()
            .head_time(millis(self.head_time))
            .keep_alive(millis(self.keep_alive))
            .write_stall(millis(self.write_stall))
            .body_progress(millis(self.body_progress))
            .half_close(millis(self.half_close))
            .buffer(self.buffer)
            .http2_streams(self.streams)
            .http2_stream_window(self.windows.0)
            .http2_connection_window(self.windows.1)
            .head(HEAD_MAX)
            .uri(URI_MAX)
            .fields(FIELDS_MAX)
            .body(BODY_MAX)
            .on_refusal(refused::mark)
            .connections(self.places)
            .per_address(usize::MAX)
            // These draw random times, which the seed does not choose.
            .drain_spread(Duration::ZERO)
            .retry_after(Duration::from_secs(1))
            .trim_heap(false)
    }
}

/// The state that the clients of a server share.
pub(crate) struct World {
    pub(crate) net: Net,
    pub(crate) connector: SimConnector,
    pub(crate) terms: Terms,
    /// `None` without TLS.
    pub(crate) seals: Option<Seals>,
    /// Milliseconds after which clients begin nothing.
    pub(crate) ends_at: u64,
    /// When the server was told to drain.
    drained_at: AtomicU64,
    /// When the listener has failed.
    failed_at: AtomicU64,
    /// When the hub was closed.
    closed_at: AtomicU64,
    /// When a sender has last given a reader up.
    gave_up_at: AtomicU64,
    pub(crate) published: Mutex<Published>,
    pub(crate) seen: Mutex<Seen>,
    pub(crate) publisher_stops: Notify,
    pub(crate) calls: Arc<Calls>,
    pub(crate) patience: Arc<Patience>,
    faults: Mutex<Vec<String>>,
}

/// Numbers for the requests of a client, which no other request has.
#[derive(Debug)]
pub(crate) struct Tags {
    client: u64,
    last: AtomicU64,
}

impl Tags {
    pub(crate) fn new(client: u64) -> Self {
        Self { client, last: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> u64 {
        (self.client << 32) + self.last.fetch_add(1, Ordering::Relaxed)
    }
}

impl World {
    /// Returns when the server was told to drain, if it was.
    pub(crate) fn drained_at(&self) -> Option<u64> {
        Some(self.drained_at.load(Ordering::Relaxed)).filter(|&at| at < u64::MAX)
    }

    /// Closes the hub.
    pub(crate) fn close(&self, hub: &Hub) {
        self.net.note(0, "the hub closes", 0);
        self.closed_at.store(self.net.now(), Ordering::Relaxed);
        hub.close();
    }

    /// Returns when the hub was closed, if it was.
    pub(crate) fn closed_at(&self) -> Option<u64> {
        Some(self.closed_at.load(Ordering::Relaxed)).filter(|&at| at < u64::MAX)
    }

    /// Records that a sender has given a reader up.
    pub(crate) fn gives_up(&self) {
        self.gave_up_at.store(self.net.now(), Ordering::Relaxed);
    }

    pub(crate) fn gave_up_at(&self) -> u64 {
        self.gave_up_at.load(Ordering::Relaxed)
    }

    /// Returns whether the listener had failed at a time.
    pub(crate) fn has_failed(&self, at: u64) -> bool {
        self.failed_at.load(Ordering::Relaxed) <= at
    }

    /// Returns whether connections may be refused.
    pub(crate) fn is_closing(&self) -> bool {
        self.drained_at().is_some() || self.has_failed(self.net.now())
    }

    /// Records something that must not happen.
    pub(crate) fn fault(&self, link: u64, what: impl fmt::Display) {
        let now = self.net.now();
        self.net.note(link, "fault", 0);
        self.faults.lock().unwrap().push(format!("at {now} ms, connection {link}: {what}"));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.net.now() >= self.ends_at
    }
}

/// The result of a seed.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) requests: u64,
    pub(crate) connection_hours: f64,
    pub(crate) faults: Vec<String>,
    pub(crate) text: Option<String>,
}

/// Runs everything that follows from `seed`.
pub(crate) fn run(seed: u64, ground: Ground, keeps_text: bool) -> Outcome {
    let run = || ground.runtime().block_on(live(seed, ground, keeps_text));
    if ground.is_simulated() { clock::stand_still(run) } else { run() }
}

async fn live(seed: u64, ground: Ground, keeps_text: bool) -> Outcome {
    let dice = Dice::new(seed);
    let tasks_before = tasks();
    let net = Net::start(dice.fork(1), keeps_text);
    let terms = Terms::choose(dice.fork(2), ground, seed % 3 == 1);
    let (listener, connector) = SimListener::new(&net);
    let hub = terms.hub.build();
    let file = ground.file().await;
    let service = Service::new(&hub, &terms.hub, file);
    let (waiting, calls) = (Arc::clone(&service.waiting), Arc::clone(&service.calls));
    let patience = Arc::clone(&service.patience);
    let (drains, drain) = oneshot::channel::<()>();
    let service = any(service_fn(move |request| service.clone().answer(request)));
    let seals = terms.tls.then(Seals::new);
    let tls = seals.as_ref().map(|seals| seals.server.clone());
    let (server, mut carriers) = ground.serve(&net, listener, service, tls, &terms, drain).await;

    let mut dice = dice.fork(3);
    let (span, most) = match terms.is_calm {
        true => (dice.in_range(8_000_000..=30_000_000), 80),
        false => (10_000 + dice.of_any_size(1..=ground.longest()), 24),
    };
    let world = Arc::new(World {
        net: net.clone(),
        connector,
        terms,
        seals,
        ends_at: span,
        drained_at: AtomicU64::new(u64::MAX),
        failed_at: AtomicU64::new(u64::MAX),
        closed_at: AtomicU64::new(u64::MAX),
        gave_up_at: AtomicU64::new(0),
        published: Mutex::default(),
        seen: Mutex::default(),
        publisher_stops: Notify::new(),
        calls,
        patience,
        faults: Mutex::default(),
    });
    let clients: Vec<_> = (0..dice.in_range(2..=most))
        .map(|number| tokio::spawn(client::live(Arc::clone(&world), dice.fork(number), number)))
        .collect();
    let mut publisher = Some(tokio::spawn(publish::publish(Arc::clone(&world), hub.clone(), dice.fork(100))));

    // Half of the servers drain while their clients are busy. The listeners of some fail.
    let at = dice.in_range(span / 4..=span);
    let drained = if dice.chance(10) && ground.is_simulated() {
        net.until(at).await;
        fail(&world, server).await;
        finish(&world, clients).await;
        drop(drains);
        None
    } else if dice.chance(if ground.is_simulated() { 55 } else { 35 }) {
        net.until(at).await;
        drain_now(&world, drains);
        let drained = drained(&world, server).await;
        finish(&world, clients).await;
        drained
    } else {
        finish(&world, clients).await;
        // A client that has vanished while it was idle has its place until then.
        sleep(Duration::from_millis(world.terms.keep_alive) + PATIENCE).await;
        let mut probes = probe::places(&world).await;
        stop(&world, &mut publisher).await;
        probe::direct_writes(&world, &hub, &mut probes).await;
        drain_now(&world, drains);
        let drained = drained(&world, server).await;
        drop(probes);
        if let Some(Drained { aborted: 1.., .. }) = drained {
            world.fault(0, format_args!("idle connections were cut off: {drained:?}"));
        }
        drained
    };
    stop(&world, &mut publisher).await;
    if let Some(drained) = drained {
        net.note(0, "drained", drained.duration.as_millis() as u64);
        if drained.connections != drained.finished + drained.notified + drained.aborted {
            world.fault(0, format_args!("{drained:?} is not a sum"));
        }
    }
    sleep(PATIENCE).await;
    check_stats(&world, &hub, world.calls.refused(), world.calls.bad_ids());
    drop(hub);
    // The task of a log ends with its hub.
    sleep(Duration::from_secs(1)).await;
    while carriers.try_join_next().is_some() {}
    // The task of the network is left, and those that carry its bytes.
    for (what, left) in [
        ("tasks", tasks() - tasks_before - 1 - carriers.len()),
        ("connections", net.links()),
        ("tasks that wait until a client has left", waiting.load(Ordering::Relaxed)),
    ] {
        if left > 0 {
            world.fault(0, format_args!("{left} {what} are left"));
        }
    }
    let sealed = world.seals.iter().flat_map(Seals::faults);
    world
        .calls
        .faults()
        .into_iter()
        .chain(world.patience.faults())
        .chain(sealed)
        .for_each(|fault| world.fault(0, fault));
    let faults = std::mem::take(&mut *world.faults.lock().unwrap());
    let connection_hours = net.connection_hours();
    net.trace(|trace| Outcome {
        hash: trace.hash(),
        events: trace.events(),
        requests: world.calls.count(),
        connection_hours,
        faults,
        text: trace.text().map(str::to_owned),
    })
}

/// Lets the publisher send what it has begun to send.
async fn stop(world: &World, publisher: &mut Option<JoinHandle<()>>) {
    if let Some(publisher) = publisher.take() {
        world.publisher_stops.notify_one();
        publisher.await.expect("no panic");
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn drain_now(world: &World, drains: oneshot::Sender<()>) {
    world.drained_at.store(world.net.now(), Ordering::Relaxed);
    world.net.note(0, "drain", 0);
    drains.send(()).expect("a server that waits for the signal");
}

async fn drained(world: &World, server: Running) -> Option<Drained> {
    let patience = Duration::from_millis(world.terms.deadline + LATE);
    match timeout(patience, server).await {
        Ok(drained) => Some(drained.expect("no panic").expect("no error")),
        Err(_) => {
            world.fault(0, "the server has not ended at its deadline");
            None
        }
    }
}

/// An error of the listener ends the server, and not its connections.
async fn fail(world: &World, server: Running) {
    world.failed_at.store(world.net.now(), Ordering::Relaxed);
    world.net.note(0, "the listener fails", 0);
    world.connector.fail(ErrorKind::OutOfMemory);
    match timeout(Duration::from_millis(1), server).await {
        Ok(ended) => match ended.expect("no panic") {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
            other => world.fault(0, format_args!("not the error of the listener: {other:?}")),
        },
        Err(_) => world.fault(0, "the server does not end with its listener"),
    }
}

async fn finish(world: &World, clients: Vec<JoinHandle<()>>) {
    for client in clients {
        if timeout(PATIENCE * 1_000, client).await.map(|ended| ended.expect("no panic")).is_err() {
            world.fault(0, "a client does not end");
        }
    }
}
