//! Pages of the log for readers that reconnect.
//!
//! Only a few pages are requested at a time, each by its own connection, regardless of the number of readers. No page
//! waits behind another on the wire, so the timeout of a request begins when it is sent. Requests that wait for their
//! turn have no timeout.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, RedisError, RedisResult, Value, cmd};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::entry::Entry;
use super::error::{code, describe};
use super::id::Id;
use super::link::RedisLink;
use super::seen::{EntryVerdict, Seen};
use super::shared::RedisShared;
use super::sizes::Plan;
use millstream::sse::log::{Replay, ReplayError};

/// Maximum number of pages requested at a time, and of connections for them.
const LINKS: usize = 4;

#[derive(Debug)]
pub(crate) struct Shelf {
    /// One permit for each requested page; a large page takes all.
    turns: Semaphore,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    idle: Vec<RedisLink>,
    backoff: Backoff,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    tried: Instant,
    until: Instant,
    error: RedisError,
}

enum ReplayFailure {
    TooLong(RedisError),
    Refused(RedisError),
    /// No connection or no reply; another attempt may succeed. Holds the start of this attempt, if it was made.
    Lost(RedisError, Option<Instant>),
}

impl Shelf {
    pub(crate) fn new(link: RedisLink) -> Self {
        let kept = Kept { idle: vec![link], ..Kept::default() };
        Self { turns: Semaphore::new(LINKS), kept: Mutex::new(kept) }
    }

    fn lock_kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn replay(
        &self,
        shared: &RedisShared,
        after: &str,
        upto: &str,
        bytes: usize,
    ) -> Result<Replay, ReplayError> {
        let (Some(after), Some(upto)) = (Id::parse(after), Id::parse(upto)) else { return Err(ReplayError::Unknown) };
        let unreachable = |e| ReplayError::Unreachable(describe(e).into());
        let mut events = Vec::new();
        let (mut from, mut gap) = (after, None);
        // One iteration, unless all entries of a page were duplicates.
        loop {
            let (entries, more) = self.page(shared, from, upto, bytes).await.map_err(unreachable)?;
            if from != Id::ZERO && entries.first().is_none_or(|first| first.id != from) {
                // The first entry that followed the removed one is unknown.
                gap = Some(None);
            }
            let mut seen = Seen::behind(from);
            for entry in entries {
                let class = entry.stamp.map_or(EntryVerdict::Next, |stamp| seen.classify(entry.id, stamp));
                if entry.id == from {
                    continue;
                }
                let missing = match class {
                    EntryVerdict::Double => {
                        shared.places().add_double(entry.id);
                        None
                    }
                    EntryVerdict::After(missing) => {
                        shared.places().add_hole(entry.id);
                        Some(Some(missing))
                    }
                    EntryVerdict::Next => shared.places().has_hole(entry.id).then_some(None),
                };
                from = entry.id;
                if shared.places().is_double(entry.id) {
                    continue;
                }
                if missing.is_some() && !events.is_empty() {
                    // A page reports a gap before its first event, so this event becomes the first of the next page.
                    return Ok(answer(events, gap).more(true));
                }
                gap = gap.or(missing);
                events.push((entry.id.to_string(), entry.event));
            }
            if !more || !events.is_empty() {
                return Ok(answer(events, gap).more(more));
            }
        }
    }

    /// Returns the entries from `from` to `upto`, both included, and whether there are more.
    async fn page(&self, shared: &RedisShared, from: Id, upto: Id, bytes: usize) -> RedisResult<(Vec<Entry>, bool)> {
        let came = Instant::now();
        loop {
            let plan = shared.sizes.plan(bytes);
            let mut range = cmd("XRANGE");
            range.arg(&shared.key).arg(from.to_string()).arg(upto.to_string()).arg("COUNT").arg(plan.entries + 1);
            match self.ask(shared, &range, plan).await {
                Ok(entries) => {
                    shared.sizes.learn(&entries);
                    let more = entries.len() > plan.entries;
                    return Ok((entries, more));
                }
                Err(ReplayFailure::TooLong(_)) if !plan.is_large => shared.sizes.refused(plan),
                Err(ReplayFailure::Lost(e, began)) => match self.lost(&e, began, came, shared.server.timeout) {
                    Some(wait) => sleep(wait).await,
                    None => return Err(e),
                },
                Err(ReplayFailure::TooLong(e) | ReplayFailure::Refused(e)) => return Err(e),
            }
        }
    }

    /// Makes one attempt. Dropping the future drops the connection, and the pending reply with it.
    async fn ask(&self, shared: &RedisShared, range: &Cmd, plan: Plan) -> Result<Vec<Entry>, ReplayFailure> {
        let turns = if plan.is_large { LINKS } else { 1 };
        // The semaphore is never closed.
        let _turn = self.turns.acquire_many(turns as u32).await;
        let (idle, began) = (self.lock_kept().idle.pop(), Instant::now());
        let mut link = match idle {
            Some(link) => link,
            None => {
                if let Some(outage) = self.lock_kept().outage.as_ref().filter(|outage| began < outage.until) {
                    return Err(ReplayFailure::Lost(outage.error.clone(), None));
                }
                let connected = shared.server.connect(Duration::ZERO).await;
                connected.map_err(|e| ReplayFailure::Lost(e, Some(began)))?
            }
        };
        link.allowance.set(plan.reply);
        match range.query_async::<Value>(&mut link.connection).await {
            Ok(entries) => {
                let mut kept = self.lock_kept();
                kept.outage = None;
                kept.backoff.reset();
                // The buffer of a large reply is not kept.
                if !plan.is_large {
                    kept.idle.push(link);
                }
                drop(kept);
                Entry::all(entries).map_err(ReplayFailure::Refused)
            }
            Err(e) if link.allowance.was_exceeded() => Err(ReplayFailure::TooLong(e)),
            Err(e) if is_refusal(&e) => Err(ReplayFailure::Refused(e)),
            // The connection may have been lost earlier, while it was idle.
            Err(e) => Err(ReplayFailure::Lost(e, Some(began))),
        }
    }

    /// Returns how long a reader that came at `came` waits before another attempt; `None` if Redis has been unreachable
    /// for longer than `patience`, and an attempt that began after the reader came has failed.
    fn lost(&self, error: &RedisError, began: Option<Instant>, came: Instant, patience: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut kept = self.lock_kept();
        // The other connections may be broken too.
        kept.idle.clear();
        let Kept { outage, backoff, .. } = &mut *kept;
        let known = outage.take().filter(|outage| now.saturating_duration_since(outage.until) < patience);
        if known.is_none() {
            backoff.reset();
        }
        let error = error.clone();
        let mut outage_now =
            known.unwrap_or_else(|| Outage { since: now, tried: came, until: now, error: error.clone() });
        if let Some(began) = began {
            outage_now.tried = outage_now.tried.max(began);
            outage_now.error = error;
        }
        if outage_now.until <= now {
            outage_now.until = now + backoff.next();
        }
        let is_over = now.duration_since(outage_now.since) >= patience && outage_now.tried >= came;
        let wait = outage_now.until - now;
        *outage = Some(outage_now);
        (!is_over).then_some(wait)
    }
}

fn is_refusal(error: &RedisError) -> bool {
    code(error).is_some_and(|code| !matches!(&*code, "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN"))
}

fn answer(events: Vec<(String, millstream::sse::Event)>, gap: Option<Option<u64>>) -> Replay {
    let replay = Replay::new(events);
    match gap {
        Some(missed) => replay.gap(missed),
        None => replay,
    }
}
