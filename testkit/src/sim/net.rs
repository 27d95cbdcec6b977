//! The simulated network: one task that lets things arrive in the order of their times.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::dice::Dice;
use super::link::{Arrival, Effects, Link, Profile, Sent, Side};
use super::trace::Trace;

/// A network of simulated connections. Cheap to clone.
#[derive(Clone)]
pub struct Net(Arc<Shared>);

struct Shared {
    start: Instant,
    state: Mutex<Links>,
    changed: Notify,
}

struct Links {
    dice: Dice,
    links: BTreeMap<u64, Link>,
    /// The arrivals to come, by the time, by a number that the dice choose for each side of a link at that time, and by the
    /// order in which it was sent: what arrives at the same time at several sides arrives in any order.
    flying: BTreeMap<(u64, u64, u64), (u64, Side, Arrival)>,
    /// The last arrivals at each side of a link: nothing overtakes.
    last: BTreeMap<u64, [u64; 2]>,
    sent: u64,
    opened: u64,
    trace: Trace,
    /// Milliseconds that connections were open, together, and since when.
    open_for: u64,
    opened_at: BTreeMap<u64, u64>,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("links", &self.links()).finish_non_exhaustive()
    }
}

impl Net {
    /// Creates a network whose choices follow from `dice`, and its task. With `keeps_text` the trace has text.
    pub fn start(dice: Dice, keeps_text: bool) -> Self {
        let state = Links {
            dice,
            links: BTreeMap::new(),
            flying: BTreeMap::new(),
            last: BTreeMap::new(),
            sent: 0,
            opened: 0,
            trace: Trace::new(keeps_text),
            open_for: 0,
            opened_at: BTreeMap::new(),
        };
        let net = Self(Arc::new(Shared { start: Instant::now(), state: Mutex::new(state), changed: Notify::new() }));
        tokio::spawn(deliver(Arc::downgrade(&net.0)));
        net
    }

    fn state(&self) -> MutexGuard<'_, Links> {
        self.0.state()
    }

    /// Returns the milliseconds since the start.
    pub fn now(&self) -> u64 {
        self.0.now()
    }

    pub fn at(&self, millis: u64) -> Instant {
        self.0.start + Duration::from_millis(millis)
    }

    /// Waits until `millis` after the start.
    pub async fn until(&self, millis: u64) {
        sleep_until(self.at(millis)).await;
    }

    /// Adds something that a client or a service has seen to the trace.
    pub fn note(&self, link: u64, what: &str, value: u64) {
        let now = self.now();
        self.state().trace.add(now, link, what, value);
    }

    /// Opens a connection, and returns its number.
    pub(super) fn open(&self, profile: Profile) -> u64 {
        let now = self.now();
        let mut state = self.state();
        state.opened += 1;
        let number = state.opened;
        let dice = state.dice.fork(number);
        state.links.insert(number, Link::new(profile, dice));
        state.opened_at.insert(number, now);
        number
    }

    /// Returns the number of connections of which a side is open.
    pub fn links(&self) -> usize {
        self.state().links.len()
    }

    /// Returns the number of sockets of a side that are open.
    pub fn open_at(&self, side: Side) -> usize {
        self.state().links.values().filter(|link| link.is_open(side)).count()
    }

    /// Returns whether the server has a connection.
    pub fn is_served(&self, link: u64) -> bool {
        self.state().links.get(&link).is_some_and(|link| link.is_open(Side::Server))
    }

    /// Returns the bytes that have arrived at the client of a connection since a time.
    pub fn heard_since(&self, link: u64, since: u64) -> usize {
        self.state().links.get(&link).map_or(0, |link| link.heard_since(Side::Client, since))
    }

    /// Returns the hours that connections were open, together.
    pub fn connection_hours(&self) -> f64 {
        let now = self.now();
        let state = self.state();
        let open = state.opened_at.values().map(|since| now - since).sum::<u64>();
        (state.open_for + open) as f64 / 3_600_000.0
    }

    pub fn trace<R>(&self, look: impl FnOnce(&Trace) -> R) -> R {
        look(&self.state().trace)
    }

    /// Lets nothing arrive on a connection any more, as when a host vanishes.
    pub(super) fn cut(&self, link: u64) {
        if let Some(link) = self.state().links.get_mut(&link) {
            link.is_cut = true;
        }
    }

    /// Changes a connection, unless both of its sides have closed, and lets happen what follows.
    pub(super) fn with<R>(&self, link: u64, change: impl FnOnce(&mut Link, &mut Effects) -> R) -> Option<R> {
        let now = self.now();
        let mut state = self.state();
        let mut effects = Effects::default();
        let result = change(state.links.get_mut(&link)?, &mut effects);
        let has_sent = !effects.sent.is_empty();
        state.send(now, link, effects.sent);
        if state.links.get(&link).is_some_and(Link::is_over) {
            state.forget(now, link);
        }
        drop(state);
        if has_sent {
            self.0.changed.notify_one();
        }
        effects.woken.into_iter().for_each(Waker::wake);
        Some(result)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Links> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Lets everything arrive that is due. Returns when the next arrival is.
    fn deliver_due(&self) -> Option<u64> {
        loop {
            let now = self.now();
            let mut state = self.state();
            let (&(at, ..), _) = state.flying.first_key_value()?;
            if at > now {
                return Some(at);
            }
            let (_, (number, side, arrival)) = state.flying.pop_first()?;
            let wakers = state.arrive(now, number, side, arrival);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl Links {
    fn send(&mut self, now: u64, link: u64, sent: Vec<Sent>) {
        for Sent { to, arrival, after } in sent {
            let last = &mut self.last.entry(link).or_default()[to as usize];
            *last = (now + after).max(*last);
            let place = self.dice.fork(*last).fork(2 * link + to as u64).roll();
            self.flying.insert((*last, place, self.sent), (link, to, arrival));
            self.sent += 1;
        }
    }

    fn arrive(&mut self, now: u64, number: u64, side: Side, arrival: Arrival) -> Vec<Waker> {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.is_cut) else { return Vec::new() };
        let (what, value) = match &arrival {
            Arrival::Bytes(bytes) => ([" -> bytes", " <- bytes"], bytes.len() as u64),
            Arrival::End => ([" -> end", " <- end"], 0),
            Arrival::Acknowledged(bytes) => (["<-  acknowledged", "->  acknowledged"], *bytes as u64),
            Arrival::Reset => ([" -> reset", " <- reset"], 0),
        };
        let what = what[usize::from(side == Side::Client)];
        self.trace.add(now, number, what, value);
        let mut effects = Effects::default();
        link.arrive(now, side, arrival, &mut effects);
        self.send(now, number, effects.sent);
        effects.woken
    }

    fn forget(&mut self, now: u64, link: u64) {
        self.links.remove(&link);
        self.last.remove(&link);
        if let Some(since) = self.opened_at.remove(&link) {
            self.open_for += now - since;
        }
    }
}

/// Delivers until the network is dropped.
async fn deliver(net: Weak<Shared>) {
    /// Time after which the task looks whether the network is still there.
    const LOOK: Duration = Duration::from_secs(60);
    while let Some(shared) = net.upgrade() {
        let next = shared.deliver_due();
        let until = next.map_or(Instant::now() + LOOK, |at| shared.start + Duration::from_millis(at));
        let changed = shared.changed.notified();
        let _ = timeout_at(until, changed).await;
    }
}
