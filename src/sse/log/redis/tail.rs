//! The one who reads what comes into the log, and hands it to the hub.
//!
//! Each look is one round trip: wait until there is something behind the last entry that was delivered, then read from
//! that entry on, **with it**. If it is not the first of what comes, the log does not have it any more, and so nobody knows
//! what came behind it: a gap. Reading only what is behind it would never tell.

use std::time::Duration;

use redis::{RedisResult, Value, cmd, pipe};
use tokio::time::sleep;

use super::Shared;
use super::allowance::REPLY_MAX;
use super::backoff::Backoff;
use super::entry::Entry;
use super::id::Id;
use super::link::Link;
use super::seen::{Seen, Verdict};
use super::sizes::Plan;
use super::stats::Part;
use crate::sse::SendError;
use crate::sse::log::Sink;

/// How long Redis lets one look wait. A peer that has vanished without a word is found out this much and the time-out later;
/// so is a log that was emptied while nothing comes.
const BLOCK: Duration = Duration::from_secs(2);
/// Bytes read by one look, about.
const LOOK: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Tail {
    /// The last entry that was delivered or passed over.
    cursor: Id,
    /// Whether that entry was in the log: then it must still be.
    known: bool,
    /// Something was lost behind the cursor, which was told; replays are to know before which entry.
    hole: bool,
    seen: Seen,
}

impl Tail {
    /// Begins behind the entry `end`, the last one.
    pub(super) fn new(end: Id) -> Self {
        Self { cursor: end, known: end != Id::ZERO, hole: false, seen: Seen::behind(end) }
    }

    /// Delivers what comes, until the hub is closed. To be dropped, not to be waited for, when it is closed otherwise.
    pub(super) async fn run(&mut self, shared: &Shared, sink: &Sink) {
        let mut backoff = Backoff::default();
        loop {
            let Err(e) = self.read(shared, sink, &mut backoff).await else { return };
            shared.stats.down(Part::Reader, &shared.server.address, &e);
            sleep(backoff.next()).await;
        }
    }

    /// Delivers what comes by one connection.
    async fn read(&mut self, shared: &Shared, sink: &Sink, backoff: &mut Backoff) -> RedisResult<()> {
        let mut link = shared.server.connect(BLOCK).await?;
        // Whether the log is as it was is to be known at once.
        let mut wait = false;
        loop {
            let plan = shared.sizes.plan(LOOK);
            let entries = match self.look(shared, &mut link, plan, wait).await {
                Err(_) if link.allowance.was_exceeded() && !plan.is_large => {
                    shared.sizes.refused(plan);
                    link = shared.server.connect(BLOCK).await?;
                    continue;
                }
                looked => looked?,
            };
            shared.stats.up(Part::Reader, &shared.server.address);
            backoff.reset();
            shared.sizes.learn(&entries);
            wait = entries.len() <= plan.entries;
            if plan.is_large {
                // The buffer of a large reply is not kept.
                link = shared.server.connect(BLOCK).await?;
            }
            let here = entries.first().is_some_and(|first| first.id == self.cursor);
            let lost = self.known && !here;
            if lost {
                self.gap(shared, sink, None);
                self.known = false;
                self.hole = true;
                if entries.is_empty() {
                    self.step_back(shared, &mut link).await?;
                }
            }
            for entry in entries.into_iter().skip(here.into()) {
                if self.deliver(shared, sink, entry, lost).is_err() {
                    return Ok(());
                }
            }
        }
    }

    /// The entries from the cursor on; if asked to, waits for one behind it.
    async fn look(&self, shared: &Shared, link: &mut Link, plan: Plan, wait: bool) -> RedisResult<Vec<Entry>> {
        link.allowance.set(plan.reply);
        let mut look = pipe();
        if wait {
            let ms = BLOCK.as_millis() as u64;
            look.cmd("XREAD").arg("BLOCK").arg(ms).arg("COUNT").arg(1).arg("STREAMS");
            look.arg(&shared.key).arg(self.cursor.to_string()).ignore();
        }
        look.cmd("XRANGE").arg(&shared.key).arg(self.cursor.to_string()).arg("+").arg("COUNT").arg(plan.entries + 1);
        let looked = look.query_async(&mut link.connection).await;
        let (entries,): (Value,) = looked.map_err(|e| link.allowance.explain(e))?;
        Entry::all(entries)
    }

    /// Goes back to the end of a log that has become shorter: after a fail-over, say, or because it was removed.
    async fn step_back(&mut self, shared: &Shared, link: &mut Link) -> RedisResult<()> {
        let end = end(&shared.key, link).await?;
        if end < self.cursor {
            self.cursor = end;
            self.known = end != Id::ZERO;
        }
        Ok(())
    }

    fn deliver(&mut self, shared: &Shared, sink: &Sink, entry: Entry, told: bool) -> Result<(), SendError> {
        self.cursor = entry.id;
        self.known = true;
        if std::mem::take(&mut self.hole) {
            shared.places().add_hole(entry.id);
        }
        match entry.stamp.map_or(Verdict::Next, |stamp| self.seen.judge(entry.id, stamp)) {
            Verdict::Next => {}
            Verdict::Double => {
                shared.stats.double();
                shared.places().add_double(entry.id);
                return Ok(());
            }
            Verdict::After(missing) => {
                shared.places().add_hole(entry.id);
                if !told {
                    self.gap(shared, sink, Some(missing));
                }
            }
        }
        match sink.deliver(&entry.id.to_string(), &entry.event) {
            Err(SendError::Closed) => Err(SendError::Closed),
            // Appended by a program that does not know what can be sent.
            Err(_) => {
                self.gap(shared, sink, Some(1));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn gap(&self, shared: &Shared, sink: &Sink, missed: Option<u64>) {
        shared.stats.gap();
        sink.gap(missed);
    }
}

/// The id of the last entry; [`Id::ZERO`] if there is none.
pub(super) async fn end(key: &str, link: &mut Link) -> RedisResult<Id> {
    link.allowance.set(REPLY_MAX);
    let last =
        cmd("XREVRANGE").arg(key).arg("+").arg("-").arg("COUNT").arg(1).query_async(&mut link.connection).await?;
    Ok(Entry::all(last)?.first().map_or(Id::ZERO, |last| last.id))
}
