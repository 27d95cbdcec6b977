//! The state of a subscription: cursors over streams, and the wake that a worker has.
//!
//! 1. A subscription has one wake at most. A wake ends when a worker is done, gives it back, or its lease ends.
//! 2. While there is none and a stream has bytes behind its cursor, the next wake has the next generation.
//! 3. Cursors do not go back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{Config, Delivery};
use super::webhook::wake_id;
use crate::fields;
use crate::store::{Store, Stream};

/// Milliseconds between a delivery that failed and the next one: the first time, and at most.
const RETRY: (i64, i64) = (1000, 60_000);
/// The longest of them, with its difference. A later one is from before the clock was set back.
const RETRY_MAX: i64 = RETRY.1 * 6 / 5;

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Subscription {
    /// The path of the streams.
    pub(crate) root: Box<str>,
    pub(crate) id: Box<str>,
    /// The URL of `root`.
    pub(crate) url: Box<str>,
    pub(crate) config: Config,
    pub(crate) created: i64,
    /// By the path behind `root`.
    pub(crate) links: BTreeMap<Box<str>, Link>,
    pub(crate) generation: u64,
    pub(crate) wake: Option<Current>,
    /// Deliveries that failed in a row, and when the next one is.
    failures: u32,
    pub(crate) retry: Option<i64>,
    #[serde(skip)]
    deleted: bool,
}

/// A stream of a subscription.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Link {
    /// Whether it was named, in addition to a pattern or without.
    pub(crate) is_explicit: bool,
    /// Which stream it is. Another one with the path is read from its start.
    stream: Option<u64>,
    pub(crate) acked: u64,
    #[serde(skip)]
    pub(crate) end: u64,
}

/// The wake that workers may have.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Current {
    pub(crate) id: String,
    worker: Option<Box<str>>,
    /// Whether a worker has claimed it or has called back.
    is_held: bool,
    /// The last stream that the worker has heard of, by its id. It must not move the cursor of a later one with the path
    /// of one that it knows.
    newest: Option<u64>,
    /// When the lease ends, in milliseconds since 1970.
    pub(crate) until: Option<i64>,
}

/// A wake to deliver.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) generation: u64,
    pub(crate) id: String,
    /// The ends of the streams with bytes behind their cursors.
    pub(crate) ends: Vec<(Box<str>, Option<u64>, u64)>,
    /// All streams, as a webhook hears of them.
    pub(crate) streams: Value,
}

/// What a worker says of a wake.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) wake_id: String,
    pub(crate) generation: u64,
    #[serde(default)]
    acks: Vec<Ack>,
    #[serde(default)]
    pub(crate) done: bool,
}

#[derive(Debug, Deserialize)]
struct Ack {
    stream: Box<str>,
    offset: String,
}

/// Why a worker is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The wake is over.
    Fenced,
    /// Another worker has it.
    Claimed {
        worker: Box<str>,
        generation: u64,
    },
    NothingPending,
    Offset(String),
}

impl Link {
    pub(crate) fn is_pending(&self) -> bool {
        self.end > self.acked
    }
}

impl Subscription {
    pub(crate) fn new(root: &str, id: &str, url: &str, config: Config, created: i64) -> Self {
        let (links, wake, retry) = (BTreeMap::new(), None, None);
        let (root, id, url) = (root.into(), id.into(), url.into());
        Self { root, id, url, config, created, links, generation: 0, wake, failures: 0, retry, deleted: false }
    }

    pub(crate) fn name(&self) -> (Box<str>, Box<str>) {
        (self.root.clone(), self.id.clone())
    }

    pub(crate) fn delete(&mut self) {
        self.deleted = true;
        self.wake = None;
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted
    }

    /// Returns the path of a stream behind the root.
    fn relative<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&*self.root)?.strip_prefix('/').filter(|path| !path.is_empty())
    }

    /// Links the named streams and those of the pattern at their ends.
    pub(crate) fn link_all(&mut self, store: &Store) {
        self.name_streams(self.config.streams.clone(), store);
        for stream in store.all() {
            let path = self.relative(&stream.meta.path).filter(|path| self.config.matches(path)).map(Box::from);
            if let Some(path) = path {
                self.links.entry(path).or_insert_with(|| Link::at_end(&stream));
            }
        }
    }

    /// Links named streams at their ends, if they are there.
    pub(crate) fn name_streams(&mut self, paths: impl IntoIterator<Item = Box<str>>, store: &Store) {
        for path in paths {
            let stream = store.get(&format!("{}/{path}", self.root)).ok();
            let link = self.links.entry(path);
            link.or_insert_with(|| stream.map(|stream| Link::at_end(&stream)).unwrap_or_default()).is_explicit = true;
        }
    }

    pub(crate) fn unname_stream(&mut self, path: &str) {
        let is_matched = self.config.matches(path);
        if let Some(link) = self.links.get_mut(path) {
            link.is_explicit = false;
            if !is_matched {
                self.links.remove(path);
            }
        }
    }

    /// Returns the number of named streams.
    pub(crate) fn named(&self) -> usize {
        self.links.values().filter(|link| link.is_explicit).count()
    }

    /// Finds the ends of the streams after a restart. A wake that no worker has is made again, because its event may
    /// have been lost.
    pub(crate) fn restore(&mut self, store: &Store) {
        self.wake.take_if(|wake| wake.until.is_none());
        for stream in store.all() {
            self.changed(&stream);
        }
        let root = &self.root;
        self.links.retain(|path, link| link.is_explicit || store.get(&format!("{root}/{path}")).is_ok());
    }

    /// Notes the end of a stream. Returns whether there is more to read. A stream that is not linked was created after
    /// the subscription, so it is linked at its start.
    pub(crate) fn changed(&mut self, stream: &Stream) -> bool {
        let Some(path) = self.relative(&stream.meta.path) else { return false };
        let (id, end) = (Some(stream.meta.id), stream.view().end);
        let new = |is_explicit| Link { is_explicit, stream: id, acked: stream.base(), end };
        match self.links.get_mut(path) {
            // Ids grow: this one was deleted before.
            Some(link) if link.stream > id => return false,
            Some(link) if link.stream == id => link.end = link.end.max(end),
            Some(link) => *link = new(link.is_explicit),
            None if self.config.matches(path) => drop(self.links.insert(path.into(), new(false))),
            None => return false,
        }
        self.links.get(path).is_some_and(Link::is_pending)
    }

    /// Forgets a stream of the pattern that was deleted. A named one waits for another stream with its path.
    pub(crate) fn removed(&mut self, stream: &Stream) {
        let Some(path) = self.relative(&stream.meta.path) else { return };
        let Some(link) = self.links.get_mut(path).filter(|link| link.stream == Some(stream.meta.id)) else { return };
        link.acked = link.end;
        if !link.is_explicit {
            self.links.remove(path);
        }
    }

    /// Makes a wake if there is none and there is something to read. Ends a lease whose time is over.
    pub(crate) fn wake(&mut self, now: i64, store: &Store) -> Option<Wake> {
        self.expire(now);
        if self.wake.is_some()
            || self.retry.is_some_and(|retry| (now + 1..=now + RETRY_MAX).contains(&retry))
            || !self.is_pending()
        {
            return None;
        }
        self.forget_deleted(store);
        if !self.is_pending() {
            return None;
        }
        self.generation += 1;
        let is_webhook = matches!(self.config.delivery, Delivery::Webhook { .. });
        let until = is_webhook.then(|| now + self.lease());
        let id = wake_id();
        let pending = self.links.iter().filter(|(_, link)| link.is_pending());
        let ends = pending.map(|(path, link)| (path.clone(), link.stream, link.end)).collect();
        self.wake = Some(Current { id: id.clone(), worker: None, is_held: false, newest: self.newest(), until });
        let streams = if is_webhook { self.streams() } else { Value::Null };
        Some(Wake { generation: self.generation, id, ends, streams })
    }

    /// Forgets streams that were deleted while forks need their bytes, which [`removed`](Self::removed) does not hear of.
    fn forget_deleted(&mut self, store: &Store) {
        let root = &self.root;
        self.links.retain(|path, link| {
            let is_there = || store.get(&format!("{root}/{path}")).is_ok_and(|is| Some(is.meta.id) == link.stream);
            if !link.is_pending() || is_there() {
                return true;
            }
            link.acked = link.end;
            link.is_explicit
        });
    }

    fn lease(&self) -> i64 {
        self.config.lease_ttl_ms.cast_signed()
    }

    fn is_pending(&self) -> bool {
        self.links.values().any(Link::is_pending)
    }

    /// Ends a lease whose time is over. One that was given before the clock was set back is no longer than a new one.
    fn expire(&mut self, now: i64) {
        let latest = now + self.lease();
        self.wake.take_if(|wake| {
            wake.until = wake.until.map(|until| until.min(latest));
            wake.until.is_some_and(|until| until <= now)
        });
    }

    /// Returns when [`wake`](Self::wake) has something to do, if nothing changes before.
    pub(crate) fn deadline(&self) -> Option<i64> {
        match &self.wake {
            Some(wake) => wake.until,
            None => self.retry.filter(|_| self.is_pending()),
        }
    }

    fn has(&self, generation: u64, id: &str) -> bool {
        self.generation == generation && self.wake.as_ref().is_some_and(|wake| wake.id == id)
    }

    /// Notes that a wake was delivered. `is_done`: the worker is done with it.
    pub(crate) fn delivered(&mut self, wake: &Wake, is_done: bool) {
        if !self.has(wake.generation, &wake.id) {
            return;
        }
        self.failures = 0;
        self.retry = None;
        if is_done {
            for (path, stream, end) in &wake.ends {
                if let Some(link) = self.links.get_mut(path).filter(|link| link.stream == *stream) {
                    link.acked = link.acked.max(*end);
                }
            }
            self.wake = None;
        }
    }

    /// Notes that a wake was not delivered, unless a worker has it nevertheless. The next one is made later: the time
    /// doubles, and differs by a fifth up or down.
    pub(crate) fn failed(&mut self, wake: &Wake, now: i64) {
        if !self.has(wake.generation, &wake.id) || self.wake.as_ref().is_some_and(|wake| wake.is_held) {
            return;
        }
        let time = (RETRY.0 << self.failures.min(16)).min(RETRY.1);
        let differs = (fields::random() % 401).cast_signed() - 200;
        self.failures += 1;
        self.retry = Some(now + time + time * differs / 1000);
        self.wake = None;
    }

    /// Gives the wake to a worker, or makes one for it.
    pub(crate) fn claim(&mut self, worker: &str, now: i64, store: &Store) -> Result<(), Denied> {
        self.expire(now);
        if self.wake.is_none() {
            self.retry = None;
            self.wake(now, store).ok_or(Denied::NothingPending)?;
        }
        let (until, generation, newest) = (Some(now + self.lease()), self.generation, self.newest());
        let wake = self.wake.as_mut().expect("made above");
        if let Some(worker) = &wake.worker {
            return Err(Denied::Claimed { worker: worker.clone(), generation });
        }
        wake.worker = Some(worker.into());
        (wake.is_held, wake.until, wake.newest) = (true, until, newest);
        Ok(())
    }

    /// Moves cursors, and ends the wake or prolongs its lease. Returns whether another wake follows.
    pub(crate) fn report(&mut self, report: &Report, now: i64) -> Result<bool, Denied> {
        let newest = self.held(report, now)?.newest;
        let mut ends = Vec::new();
        for Ack { stream, offset } in &report.acks {
            let stream = stream.trim_start_matches('/');
            let link = self.links.get(stream).filter(|link| link.stream <= newest);
            let end = fields::parse_offset(offset).filter(|end| link.is_some_and(|link| *end <= link.end));
            ends.push((stream, end.ok_or_else(|| Denied::Offset(format!("{stream} has no offset {offset}")))?));
        }
        for (stream, end) in ends {
            if let Some(link) = self.links.get_mut(stream) {
                link.acked = link.acked.max(end);
            }
        }
        (self.failures, self.retry) = (0, None);
        let until = Some(now + self.lease());
        match &mut self.wake {
            Some(wake) if !report.done => (wake.until, wake.is_held) = (until, true),
            wake => *wake = None,
        }
        Ok(report.done && self.is_pending())
    }

    /// Takes the wake back from its worker.
    pub(crate) fn release(&mut self, report: &Report, now: i64) -> Result<(), Denied> {
        self.held(report, now)?;
        self.wake = None;
        Ok(())
    }

    /// Fails unless the wake of a report is the current one, and a worker has it.
    fn held(&mut self, report: &Report, now: i64) -> Result<&Current, Denied> {
        self.expire(now);
        let has = self.has(report.generation, &report.wake_id);
        self.wake.as_ref().filter(|wake| has && wake.until.is_some()).ok_or(Denied::Fenced)
    }

    fn newest(&self) -> Option<u64> {
        self.links.values().filter_map(|link| link.stream).max()
    }
}

impl Link {
    fn at_end(stream: &Stream) -> Self {
        let end = stream.view().end;
        Self { is_explicit: false, stream: Some(stream.meta.id), acked: end, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_no_longer_than_a_new_one_although_the_clock_is_set_back() {
        const LEASE: i64 = 30_000;
        let config = br#"{"type":"pull-wake","wake_stream":"wakes","pattern":"**","lease_ttl_ms":30000}"#;
        let config = Config::parse(config, false).unwrap();
        let mut subscription = Subscription::new("", "id", "", config, 0);
        let (given, back) = (10 * LEASE, LEASE);
        let until = Some(given + LEASE);
        subscription.wake = Some(Current { id: wake_id(), worker: None, is_held: true, newest: None, until });
        subscription.expire(given);
        assert_eq!(subscription.deadline(), until);
        subscription.expire(back);
        assert_eq!(subscription.deadline(), Some(back + LEASE));
        subscription.expire(back + LEASE - 1);
        assert!(subscription.wake.is_some(), "its worker is in time");
        subscription.expire(back + LEASE);
        assert!(subscription.wake.is_none());
    }
}
