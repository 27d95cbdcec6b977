//! A proxy with its clients and its upstream, from a seed to the end, and what is counted to zero behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use http::header::{DATE, HeaderValue};
use millstream::net::{Accept, UnixListener};
use millstream::server::{RequestBody, serve};
use millstream_proxy::{Circuit, Proxy};
use testkit::sim::{Dice, Net, SimConnector, SimListener, kernel};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::crowd::Crowd;
use crate::terms::{LATE, Terms, upstream_profile};
use crate::{client1, client2, tunnel, upstream1, upstream2};

/// Time between two looks at the numbers of the proxy.
const LOOK: Duration = Duration::from_millis(100);
/// Looks in a row that must find too many connections: one that is closed is counted until the upstream has noticed.
const LOOKS: usize = 15;
/// Longer than all limits.
const HANGS: Duration = Duration::from_secs(3_600);

/// The state that the clients and the upstream share.
pub(crate) struct World {
    pub(crate) net: Net,
    pub(crate) connector: SimConnector,
    pub(crate) terms: Terms,
    /// Milliseconds after which clients begin nothing.
    pub(crate) ends_at: u64,
    /// When the upstream is down.
    pub(crate) outage: Option<(u64, u64)>,
    /// When the upstream has ended connections with requests in progress.
    hard_ends: Mutex<Vec<u64>>,
    /// How often the upstream has received each request.
    seen: Mutex<BTreeMap<u64, u32>>,
    refused: Mutex<BTreeMap<u64, u64>>,
    /// Requests that the upstream has cut.
    cut: Mutex<BTreeSet<u64>>,
    pub(crate) crowd: Crowd,
    /// Connections of the upstream that it has not ended.
    connections: AtomicIsize,
    faults: Mutex<Vec<String>>,
    tags: AtomicU64,
}

impl World {
    pub(crate) fn tag(&self) -> u64 {
        self.tags.fetch_add(1, Ordering::Relaxed)
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

    fn is_down(&self) -> bool {
        self.outage.is_some_and(|(from, to)| (from..to).contains(&self.net.now()))
    }

    /// Returns whether the upstream was down, or has ended connections, between two times.
    pub(crate) fn was_down(&self, from: u64, to: u64) -> bool {
        let met = |begin: u64, end: u64| from <= end + LATE && to + LATE >= begin;
        self.outage.is_some_and(|(begin, end)| met(begin, end))
            || self.hard_ends.lock().unwrap().iter().any(|&at| met(at, at))
    }

    /// Returns whether the circuit may refuse a request that begins now. Small requests are sent all the time.
    pub(crate) fn may_be_open(&self, at: u64) -> bool {
        match (self.outage, self.terms.breaker) {
            (Some((from, to)), Some((_, back_off))) => at + LATE >= from && at <= to + 2 * back_off + LATE,
            _ => false,
        }
    }

    /// Returns whether the proxy may let a request wait that begins and is answered at these times.
    pub(crate) fn may_wait(&self, began: u64, answered: u64) -> bool {
        self.crowd.count(began, answered) > self.terms.requests
    }

    /// Returns whether the proxy may refuse it: after the patience of the queue, or because the queue is full.
    pub(crate) fn may_refuse(&self, began: u64, answered: u64) -> bool {
        let (most_waiting, patience) = self.terms.queue;
        let is_patient = answered >= began + patience && self.may_wait(began, answered);
        is_patient || self.crowd.count(began, answered) > self.terms.requests + most_waiting
    }

    /// Records that the upstream ends a connection with requests in progress.
    pub(crate) fn end_hard(&self) {
        self.hard_ends.lock().unwrap().push(self.net.now());
    }

    pub(crate) fn cut(&self, tag: u64) {
        self.cut.lock().unwrap().insert(tag);
    }

    pub(crate) fn was_cut(&self, tag: u64) -> bool {
        self.cut.lock().unwrap().contains(&tag)
    }

    /// Records that the upstream has received a request.
    pub(crate) fn reached(&self, link: u64, tag: u64, is_post: bool) {
        self.net.note(link, "upstream", tag);
        let mut seen = self.seen.lock().unwrap();
        let times = seen.entry(tag).or_default();
        *times += 1;
        let times = *times;
        drop(seen);
        if tag > 0 && times > if is_post { 1 } else { 2 } {
            self.fault(link, format_args!("the request {tag} came {times} times, POST: {is_post}"));
        }
    }

    pub(crate) fn was_seen(&self, tag: u64) -> bool {
        self.seen.lock().unwrap().contains_key(&tag)
    }

    /// Returns whether a stream is refused, `most` times for each request.
    pub(crate) fn refuses(&self, tag: u64, most: u64) -> bool {
        let mut refused = self.refused.lock().unwrap();
        let times = refused.entry(tag).or_default();
        *times += 1;
        *times <= most
    }
}

/// The result of a seed.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) requests: u64,
    pub(crate) faults: Vec<String>,
    pub(crate) text: Option<String>,
}

/// Runs everything that follows from `seed`.
pub(crate) fn run(seed: u64, keeps_text: bool) -> Outcome {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(live(Dice::new(seed), keeps_text))
}

fn name(what: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("\0millstream-sim-{what}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

async fn live(dice: Dice, keeps_text: bool) -> Outcome {
    let tasks_before = tasks();
    let net = Net::start(dice.fork(1), keeps_text);
    let (listener, connector) = SimListener::new(&net);
    let mut choices = dice.fork(3);
    let span = 5_000 + choices.of_any_size(1..=40_000);
    let terms = Terms::choose(dice.fork(2));
    let outage = terms.breaker.map(|_| (choices.in_range(1_000..=span / 2), choices.of_any_size(100..=10_000)));
    net.note(0, &format!("{terms:?}"), span);
    let world = Arc::new(World {
        net: net.clone(),
        connector,
        terms,
        ends_at: span,
        outage: outage.map(|(from, takes)| (from, from + takes)),
        hard_ends: Mutex::default(),
        seen: Mutex::default(),
        refused: Mutex::default(),
        cut: Mutex::default(),
        crowd: Crowd::default(),
        connections: AtomicIsize::new(0),
        faults: Mutex::default(),
        tags: AtomicU64::new(1),
    });
    let mut carriers = JoinSet::new();
    let proxy = world.terms.proxy(upstream(&world, dice.fork(4), &mut carriers));
    let (drains, drain) = oneshot::channel();
    let server = match world.terms.has_sockets {
        false => start(listener, proxy.clone(), &world.terms, drain),
        true => {
            let path = name("server");
            let server = UnixListener::bind(&path).await.expect("a name of its own");
            carriers.spawn(kernel::forward(listener, path.into()));
            start(server, proxy.clone(), &world.terms, drain)
        }
    };
    carriers.spawn(kernel::tick(net.clone()));
    let watcher = tokio::spawn(look(Arc::clone(&world), proxy.clone()));

    finish(&world, clients(&world, &dice, &mut choices)).await;
    watcher.abort();
    let _ = watcher.await;
    let terms = &world.terms;
    let patience = terms.tunnel.max(terms.silence).max(terms.timeout) + 2 * terms.idle_timeout + 60_000;
    sleep(Duration::from_millis(patience)).await;
    quiet(&world, &proxy);
    client1::last(&world).await;
    drop(proxy);
    drains.send(()).expect("a server that waits for the signal");
    let drained = timeout(HANGS, server).await.expect("a server that ends").expect("no panic").expect("no error");
    net.note(0, "drained", drained.duration.as_millis() as u64);
    sleep(Duration::from_secs(60)).await;
    // Left are the task of the network, those that carry its bytes, and the flusher of the runtime, which streams of
    // millstream start.
    for (what, left) in [("tasks", tasks() - tasks_before - 2 - carriers.len()), ("connections", net.links())] {
        if left > 0 {
            world.fault(0, format_args!("{left} {what} are left"));
        }
    }
    let faults = std::mem::take(&mut *world.faults.lock().unwrap());
    net.trace(|trace| Outcome {
        hash: trace.hash(),
        events: trace.events(),
        requests: world.tags.load(Ordering::Relaxed) - 1,
        faults,
        text: trace.text().map(str::to_owned),
    })
}

fn start<L: Accept>(listener: L, proxy: Proxy, terms: &Terms, drain: oneshot::Receiver<()>) -> Running {
    // hyper would read the clock of the system.
    let undated = ServiceExt::<Request<RequestBody>>::map_response(proxy, |mut response| {
        response.headers_mut().insert(DATE, HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"));
        response
    });
    let server = serve(listener, undated).limits(terms.limits()).drain(drain, Duration::from_secs(10));
    tokio::spawn(server.into_future())
}

type Running = JoinHandle<std::io::Result<millstream::server::Drained>>;

fn clients(world: &Arc<World>, dice: &Dice, choices: &mut Dice) -> Vec<JoinHandle<()>> {
    let mut clients: Vec<_> = (0..choices.in_range(2..=8))
        .map(|number| {
            let (world, dice) = (Arc::clone(world), dice.fork(100 + number));
            match choices.in_range(0..=5) {
                0..=2 => tokio::spawn(client1::live(world, dice)),
                3 if !world.terms.is_http2 => tokio::spawn(tunnel::live(world, dice)),
                _ => tokio::spawn(client2::live(world, dice)),
            }
        })
        .collect();
    if world.outage.is_some() {
        clients.push(tokio::spawn(client1::steady(Arc::clone(world), dice.fork(200))));
        for number in 0..choices.in_range(0..=2) {
            clients.push(tokio::spawn(client1::slow(Arc::clone(world), dice.fork(201 + number))));
        }
    }
    clients
}

/// Starts the upstream, and returns its address.
fn upstream(world: &Arc<World>, dice: Dice, carriers: &mut JoinSet<()>) -> millstream_proxy::Upstream {
    let path = name("upstream");
    let kernel = tokio::net::UnixListener::bind(&path).expect("a name of its own");
    let (listener, connector) = SimListener::new(&world.net);
    let (w, mut profiles) = (Arc::clone(world), dice.fork(1));
    let choose = move || (!w.is_down()).then(|| upstream_profile(&mut profiles, &w.terms));
    carriers.spawn(kernel::accept(kernel, connector, choose));
    let is_http2 = world.terms.is_http2;
    carriers.spawn(accept(Arc::clone(world), listener, dice));
    format!("{}unix:{path}", if is_http2 { "h2c:" } else { "" }).parse().expect("an address")
}

/// Serves the connections of the proxy. The beginning of the outage ends them.
async fn accept(world: Arc<World>, listener: SimListener, dice: Dice) {
    let mut serving = JoinSet::new();
    loop {
        let (socket, _) = listener.accept_socket().await.expect("a listener that does not fail");
        while let Some(ended) = serving.try_join_next() {
            if let Err(error) = ended {
                world.fault(0, format_args!("the upstream: {error}"));
            }
        }
        let (world, dice) = (Arc::clone(&world), dice.fork(1_000 + socket.link()));
        let counted = Counted::new(&world, 1);
        serving.spawn(async move {
            let _counted = counted;
            let serve = async {
                match world.terms.is_http2 {
                    true => upstream2::serve(Arc::clone(&world), socket, dice).await,
                    false => upstream1::serve(Arc::clone(&world), socket, dice).await,
                }
            };
            let end = world.outage.map(|(from, _)| from).filter(|&from| world.net.now() < from);
            tokio::select! {
                biased;
                () = serve => {}
                () = world.net.until(end.unwrap_or(0)), if end.is_some() => {}
            }
        });
    }
}

/// Counts connections of the upstream, until it is dropped.
pub(crate) struct Counted {
    world: Arc<World>,
    by: isize,
}

impl Counted {
    pub(crate) fn new(world: &Arc<World>, by: isize) -> Self {
        world.connections.fetch_add(by, Ordering::Relaxed);
        Self { world: Arc::clone(world), by }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.world.connections.fetch_sub(self.by, Ordering::Relaxed);
    }
}

/// Compares the numbers of the proxy with its limits, until the task is aborted.
async fn look(world: Arc<World>, proxy: Proxy) {
    let terms = &world.terms;
    let mut surplus = 0;
    loop {
        sleep(LOOK).await;
        let state = proxy.state();
        let connections = world.connections.load(Ordering::Relaxed);
        let is_too_much = !terms.is_http2 && connections > terms.requests as isize;
        surplus = if is_too_much { surplus + 1 } else { 0 };
        let most = if terms.is_http2 { usize::MAX } else { terms.requests };
        if surplus == LOOKS
            || state.idle_connections > terms.idle
            || state.waiting > terms.queue.0
            || state.in_progress + state.idle_connections > most
        {
            world.fault(0, format_args!("a limit is exceeded: {connections} connections, {state:?}"));
        }
    }
}

async fn finish(world: &World, clients: Vec<JoinHandle<()>>) {
    for client in clients {
        if timeout(HANGS, client).await.map(|ended| ended.expect("no panic")).is_err() {
            world.fault(0, "a client does not end");
        }
    }
}

/// Expects that nothing of the requests is left. HTTP/2 may keep a connection with wide windows and one with narrow ones.
fn quiet(world: &World, proxy: &Proxy) {
    let state = proxy.state();
    let connections = world.connections.load(Ordering::Relaxed);
    let most = if world.terms.is_http2 { 2 } else { 0 };
    if (state.in_progress, state.waiting, state.idle_connections) != (0, 0, 0) || connections > most {
        world.fault(0, format_args!("without clients: {connections} connections, {state:?}"));
    }
    if state.circuit != Circuit::Closed {
        world.fault(0, format_args!("the circuit does not close: {state:?}"));
    }
}
