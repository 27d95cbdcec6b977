//! The hub of a server: its options, which events it still has, and what its statistics say at the end.

use std::time::Duration;

use millstream::metrics::Snapshot;
use millstream::sse::{Hub, LagPolicy};
use testkit::sim::Dice;

use crate::ground::Ground;
use crate::log::EventLog;
use crate::world::World;

/// The options of a hub. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct HubTerms {
    /// Events that it keeps, and their encoded bytes.
    pub(crate) ring: u64,
    bytes: usize,
    /// Time for which it keeps an event.
    age: Option<u64>,
    /// Events by which a reader may be behind.
    pub(crate) queue: u64,
    pub(crate) policy: LagPolicy,
    /// Period of the comments.
    pub(crate) keep_alive: u64,
    /// Age at which a stream ends.
    pub(crate) max_age: Option<u64>,
    /// Readers that it takes.
    pub(crate) subscribers: usize,
    pub(crate) gzip: bool,
    /// Each event whose number this divides has an id of its own.
    given: Option<u64>,
    pub(crate) past_layers: bool,
    pub(crate) log: Option<EventLog>,
}

/// Time for which a sender waits for a reader, in milliseconds.
pub(crate) const PATIENCE: u64 = 3_000;

impl HubTerms {
    /// Chooses them. With `moves`, its events and its readers may move to another hub.
    pub(crate) fn choose(mut dice: Dice, ground: Ground, moves: bool) -> Self {
        let ring = *dice.pick(&[1_000, 1_000, 16]);
        let gzip = dice.chance(40);
        let has_log = dice.chance(if ground.is_simulated() { 30 } else { 45 }) && !moves;
        let log = has_log.then(|| EventLog::choose(&mut dice, ground));
        let policies = [LagPolicy::DropOldest, LagPolicy::DropOldest, LagPolicy::Latest, LagPolicy::Disconnect];
        let policy = if log.is_none() && dice.chance(30) { LagPolicy::Block } else { *dice.pick(&policies) };
        // The ids of a hub begin with a random number, so that their compressed length does not follow from the seed.
        let given = match log.is_some() {
            true => None,
            false if gzip && ground.is_simulated() => Some(1),
            false => *dice.pick(&[None, None, Some(3)]),
        };
        Self {
            ring,
            bytes: *dice.pick(&[16 << 20, 16 << 20, 4 << 10]),
            age: *dice.pick(&[None, None, Some(20_000)]),
            // Readers that stop reading soon hold their senders up.
            queue: *dice.pick(&if policy == LagPolicy::Block { [16, 4, 4] } else { [ring, ring, 4] }),
            policy,
            keep_alive: *dice.pick(&[15_000, 15_000, 3_000]),
            max_age: *dice.pick(&[None, None, None, Some(30_000)]),
            subscribers: if dice.chance(15) { dice.in_range(1..=3) as usize } else { usize::MAX },
            gzip,
            given,
            past_layers: !ground.is_simulated() && (dice.chance(85) || moves),
            log,
        }
    }

    /// Returns whether its events and its readers may move to another hub.
    pub(crate) fn may_move(&self) -> bool {
        self.past_layers && self.log.is_none()
    }

    pub(crate) async fn build(&self) -> Hub {
        let millis = Duration::from_millis;
        let hub = Hub::builder()
            .retry(Duration::from_secs(2))
            .replay(self.ring as usize)
            .replay_bytes(self.bytes)
            .queue(self.queue as usize)
            .lag_policy(self.policy)
            .keep_alive(millis(self.keep_alive))
            .subscribers(self.subscribers)
            .patience(millis(PATIENCE))
            .past_layers(self.past_layers);
        let hub = if let Some(age) = self.age { hub.replay_age(millis(age)) } else { hub };
        let hub = if let Some(age) = self.max_age { hub.max_age(millis(age)) } else { hub };
        let hub = match &self.log {
            None => hub,
            Some(EventLog::Simulated(log)) => hub.log(log.clone()),
            Some(EventLog::Directory(directory)) => hub.log(directory.open().await),
        };
        if self.gzip { hub.gzip(6).build() } else { hub.build() }
    }

    /// Returns the longest time in which a reader that resumes gets what the ring does not have.
    pub(crate) fn replay_time(&self) -> u64 {
        self.log.as_ref().map_or(0, EventLog::replay_time)
    }

    /// Returns the id of an event, if it is not one of the hub.
    pub(crate) fn id(&self, number: u64) -> Option<String> {
        self.given.filter(|&given| number.is_multiple_of(given)).map(|_| format!("event {number}"))
    }
}

/// An event that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) id: String,
    len: usize,
}

/// The events that were sent, and which of them the ring still has.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) events: Vec<Sent>,
    /// Number of the first event in the ring, and the encoded bytes of all in it.
    base: u64,
    bytes: usize,
}

impl Published {
    pub(crate) fn len(&self) -> u64 {
        self.events.len() as u64
    }

    pub(crate) fn add(&mut self, terms: &HubTerms, at: u64, id: String, data: &str) {
        let len = format!("data: {data}\nid: {id}\n\n").len();
        self.events.push(Sent { at, id, len });
        self.bytes += len;
        while self.len() - self.base > 1 && (self.len() - self.base > terms.ring || self.bytes > terms.bytes)
            || self.is_old(terms, at)
        {
            self.bytes -= self.events[self.base as usize].len;
            self.base += 1;
        }
    }

    fn is_old(&self, terms: &HubTerms, now: u64) -> bool {
        self.events.get(self.base as usize).is_some_and(|oldest| terms.age.is_some_and(|age| now - oldest.at > age))
    }

    /// Returns the number of the first event that a reader which comes now or earlier gets at the least.
    pub(crate) fn first_kept(&self, terms: &HubTerms, now: u64) -> u64 {
        // The ring is looked through for old events when a reader comes.
        let in_ring = self.first_in_ring(terms, now);
        terms.log.as_ref().map_or(in_ring, |log| log.first().min(in_ring))
    }

    /// Returns the number of the first event that a reader which comes now gets of the ring, at the least.
    pub(crate) fn first_in_ring(&self, terms: &HubTerms, now: u64) -> u64 {
        let is_old = |sent: &Sent| terms.age.is_some_and(|age| now - sent.at > age);
        self.base + self.events[self.base as usize..].iter().take_while(|sent| is_old(sent)).count() as u64
    }

    /// Returns the number of the first event that is left to a reader which is not reconnecting, if it was too slow.
    pub(crate) fn first_queued(&self, terms: &HubTerms, now: u64) -> u64 {
        let queue = if terms.policy == LagPolicy::Latest { 1 } else { terms.queue };
        self.base.max(self.first_kept(terms, now)).max(self.len().saturating_sub(queue))
    }

    /// Returns whether a reader that waits for the event `next` may be too slow.
    pub(crate) fn may_be_late(&self, terms: &HubTerms, next: u64, now: u64) -> bool {
        next < self.base.max(self.first_kept(terms, now)) || self.len() > next + terms.queue
    }

    /// Returns the first event that was sent at a time or later.
    pub(crate) fn since(&self, at: u64) -> u64 {
        self.events.partition_point(|sent| sent.at < at) as u64
    }

    /// Returns the longest time between two times in which no event was sent.
    pub(crate) fn longest_silence(&self, from: u64, until: u64) -> u64 {
        let sent = self.events.iter().map(|sent| sent.at).filter(|sent| (from..until).contains(sent));
        let mut last = from;
        sent.chain([until]).map(|at| at - std::mem::replace(&mut last, at)).max().unwrap_or(0)
    }
}

/// Numbers of all clients of a hub, which counted at least as much.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) events: u64,
    pub(crate) slow_gaps: u64,
    pub(crate) missed: u64,
}

/// Compares the statistics of a hub, whose readers have left, with what was sent and seen, and with what the service counted.
pub(crate) fn check_stats(world: &World, hub: &Hub, refused: u64, bad_ids: u64) {
    let (stats, published) = (hub.stats(), world.published.lock().unwrap());
    let (seen, terms) = (*world.seen.lock().unwrap(), &world.terms);
    let in_ring = ((published.len() - published.base) as usize, published.bytes);
    let is_right = (stats.subscribers, stats.direct) == (0, 0)
        && (stats.sent, stats.refused, stats.bad_ids) == (published.len(), refused, bad_ids)
        // An event that has aged may be in the ring until the next one comes.
        // Events that a reader waits for stay in the ring, and another hub has those that came last.
        && (terms.hub.age.is_some() || terms.hub.policy == LagPolicy::Block || terms.moves || (stats.ring_events, stats.ring_bytes) == in_ring)
        && (stats.delivered >= seen.events && stats.gaps >= seen.slow_gaps && stats.dropped >= seen.missed)
        // Each reader misses each event once at most.
        && stats.dropped <= published.len() * world.calls.count()
        && stats.compressed <= if world.terms.hub.gzip { stats.sent } else { 0 };
    // Other seeds may run in the process.
    let process = Snapshot::now().since(&world.counted);
    let is_right = is_right
        && (process.events_sent >= stats.sent && process.events_delivered >= stats.delivered)
        && (process.events_dropped >= stats.dropped && process.event_gaps >= stats.gaps)
        && process.event_ids_refused >= stats.bad_ids;
    if !is_right {
        let counted = (published.len(), refused, bad_ids, in_ring);
        world.fault(0, format_args!("{stats:?}, but {seen:?}, and {counted:?}"));
    }
}
