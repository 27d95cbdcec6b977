//! A server with its clients, from a seed to the end, and what is counted to zero behind it.

use std::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::metrics::Snapshot;
use millstream::server::Drained;
use millstream::sse::Hub;
use testkit::serving::any;
use testkit::sim::{Dice, Net, SimConnector, SimListener};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::service_fn;

#[cfg(not(portable))]
use crate::deploy;
use crate::ground::{Ground, Running};
use crate::hub::{Published, Seen, check_stats};
use crate::patience::Patience;
use crate::seal::Seals;
use crate::service::{Calls, Service};
use crate::terms::Terms;
use crate::{client, clock, log, probe, publish};

/// Time by which a limit may take effect late, as [`Limits`] says.
pub(crate) const LATE: u64 = 1_000;
/// Time without a byte after which a connection that drains is idle.
pub(crate) const IDLE_IN_DRAIN: u64 = 250;
/// Longer than what is left of a connection whose client has left: a server discards bytes for 30 s.
const PATIENCE: Duration = Duration::from_secs(400);

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
    /// Counters of the process when it began.
    pub(crate) counted: Snapshot,
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

#[cfg_attr(portable, expect(unused_variables, reason = "no server has another one behind it"))]
async fn live(seed: u64, ground: Ground, keeps_text: bool) -> Outcome {
    let dice = Dice::new(seed);
    let tasks_before = tasks();
    let net = Net::start(dice.fork(1), keeps_text);
    // Another third has a deploy, with few clients before it.
    let deploys = !ground.is_simulated() && seed % 3 == 2;
    let terms = Terms::choose(dice.fork(2), ground, seed % 3 == 1, deploys);
    let (listener, connector) = SimListener::new(&net);
    let hub = terms.hub.build().await;
    let file = ground.file().await;
    let service = Service::new(&hub, &terms.hub, file);
    let (waiting, calls) = (Arc::clone(&service.waiting), Arc::clone(&service.calls));
    let patience = Arc::clone(&service.patience);
    let (drains, drain) = oneshot::channel::<()>();
    let answers = service.clone();
    // It holds the hub.
    let service = terms.moves.then_some(service);
    let answers = any(service_fn(move |request| answers.clone().answer(request)));
    let seals = terms.tls.then(Seals::new);
    let (gives, given) = mpsc::channel(terms.places);
    let tls = seals.as_ref().map(|seals| seals.server.clone());
    let (server, mut carriers) =
        ground.serve(&net, listener, answers, tls, &terms, (drain, terms.moves.then_some(gives))).await;

    let mut dice = dice.fork(3);
    let (span, most) = match terms.is_calm {
        true => (dice.in_range(8_000_000..=30_000_000), 80),
        false if deploys => (2_000 + dice.of_any_size(1..=8_000), 6),
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
        counted: Snapshot::now(),
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
    } else if dice.chance(if ground.is_simulated() { 55 } else { 35 }) && !world.terms.moves {
        net.until(at).await;
        drain_now(&world, drains).await;
        let drained = drained(&world, server).await;
        finish(&world, clients).await;
        drained
    } else {
        finish(&world, clients).await;
        // A client that has vanished while it was idle has its place until then.
        sleep(Duration::from_millis(world.terms.keep_alive) + PATIENCE).await;
        let mut probes = probe::places(&world).await;
        stop(&world, &mut publisher).await;
        if let Some(wire) = probes.pop() {
            probe::behind(&world, wire).await;
        }
        if let Some(wire) = probes.last_mut() {
            probe::brief(&world, wire).await;
            probe::given_up(&world, &hub, wire).await;
            probes.pop();
        }
        probe::direct_writes(&world, &hub, &mut probes).await;
        match world.terms.moves && world.closed_at().is_none() {
            #[cfg(not(portable))]
            true => {
                drop(probes);
                // The server notices that they have left.
                sleep(PATIENCE).await;
                deploy::deploy(
                    &world,
                    (&hub, service.expect("it is kept")),
                    given,
                    async || drain_now(&world, drains).await,
                    server,
                )
                .await;
                None
            }
            _ => {
                // A connection that moves is closed.
                drop(given);
                let busy = probe::busy(&world, &mut probes).await;
                drain_now(&world, drains).await;
                let drained = drained(&world, server).await;
                drop((probes, busy));
                if drained.is_some_and(|drained| drained.aborted != 1) {
                    world.fault(0, format_args!("not the busy connection was cut off, and no other: {drained:?}"));
                }
                drained
            }
        }
    };
    stop(&world, &mut publisher).await;
    if let Some(drained) = drained {
        net.note(0, "drained", drained.duration.as_millis() as u64);
        if drained.connections != drained.finished + drained.notified + drained.aborted + drained.moved {
            world.fault(0, format_args!("{drained:?} is not a sum"));
        }
    }
    sleep(PATIENCE).await;
    check_stats(&world, &hub, world.calls.refused(), world.calls.bad_ids());
    drop(hub);
    // The task of a log ends with its hub.
    sleep(Duration::from_secs(1)).await;
    log::check(&world).await;
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

async fn drain_now(world: &Arc<World>, drains: oneshot::Sender<()>) {
    world.drained_at.store(world.net.now(), Ordering::Relaxed);
    world.net.note(0, "drain", 0);
    // Behind them, sockets of the kernel need a moment until a connection waits.
    let waiting = if world.terms.resets { Some(probe::waiting(world).await) } else { None };
    drains.send(()).expect("a server that waits for the signal");
    waiting.map(tokio::spawn);
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
