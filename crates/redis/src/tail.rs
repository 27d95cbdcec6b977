//! Reader of the live end of the log.
//!
//! Each read is one round trip: it waits for an entry after the last delivered one, then reads from the delivered entry
//! on, **including it**. If that entry is not the first of the reply, the log no longer has it, so following entries
//! may be missing: a gap. Reading only later entries would not detect this.

use std::time::Duration;

use redis::{RedisResult, Value, cmd, pipe};
use tokio::time::sleep;

use super::allowance::REPLY_MAX;
use super::backoff::Backoff;
use super::entry::Entry;
use super::id::Id;
use super::link::RedisLink;
use super::seen::{EntryVerdict, Seen};
use super::shared::RedisShared;
use super::sizes::Plan;
use super::stats::Part;
use millstream::sse::SendError;
use millstream::sse::log::Sink;

/// Maximum time that Redis blocks for one read. A vanished peer is detected after this time plus the timeout. The same
/// applies to a log that was emptied while no entry arrives.
const BLOCK: Duration = Duration::from_secs(2);
const LOOK: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Tail {
    cursor: Id,
    /// Whether that entry was in the log, and so must still be.
    known: bool,
    /// Whether entries were lost after the cursor and reported; replays need the entry after the loss.
    hole: bool,
    seen: Seen,
}

impl Tail {
    pub(crate) fn new(end: Id) -> Self {
        Self { cursor: end, known: end != Id::ZERO, hole: false, seen: Seen::behind(end) }
    }

    /// Delivers new entries until the hub is closed. Otherwise it does not return and must be dropped.
    pub(crate) async fn run(&mut self, shared: &RedisShared, sink: &Sink) {
        let mut backoff = Backoff::default();
        loop {
            let Err(e) = self.read(shared, sink, &mut backoff).await else { return };
            shared.stats.down(Part::Reader, &shared.server.address, &e);
            sleep(backoff.next()).await;
        }
    }

    async fn read(&mut self, shared: &RedisShared, sink: &Sink, backoff: &mut Backoff) -> RedisResult<()> {
        let mut link = shared.server.connect(BLOCK).await?;
        // The first read checks at once that the log is unchanged.
        let mut wait = false;
        loop {
            let plan = shared.sizes.plan(LOOK);
            let entries = match self.read_entries(shared, &mut link, plan, wait).await {
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

    async fn read_entries(
        &self,
        shared: &RedisShared,
        link: &mut RedisLink,
        plan: Plan,
        wait: bool,
    ) -> RedisResult<Vec<Entry>> {
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

    /// Goes back to the end of a log that became shorter, for example after a fail-over or because it was removed.
    async fn step_back(&mut self, shared: &RedisShared, link: &mut RedisLink) -> RedisResult<()> {
        let end = end(&shared.key, link).await?;
        if end < self.cursor {
            self.cursor = end;
            self.known = end != Id::ZERO;
        }
        Ok(())
    }

    fn deliver(&mut self, shared: &RedisShared, sink: &Sink, entry: Entry, reported: bool) -> Result<(), SendError> {
        self.cursor = entry.id;
        self.known = true;
        if std::mem::take(&mut self.hole) {
            shared.places().add_hole(entry.id);
        }
        match entry.stamp.map_or(EntryVerdict::Next, |stamp| self.seen.classify(entry.id, stamp)) {
            EntryVerdict::Next => {}
            EntryVerdict::Double => {
                shared.stats.double();
                shared.places().add_double(entry.id);
                return Ok(());
            }
            EntryVerdict::After(missing) => {
                shared.places().add_hole(entry.id);
                if !reported {
                    self.gap(shared, sink, Some(missing));
                }
            }
        }
        match sink.deliver(&entry.id.to_string(), &entry.event) {
            Err(SendError::Closed) => Err(SendError::Closed),
            // Appended by another program, with an invalid name.
            Err(_) => {
                self.gap(shared, sink, Some(1));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn gap(&self, shared: &RedisShared, sink: &Sink, missed: Option<u64>) {
        shared.stats.gap();
        sink.gap(missed);
    }
}

pub(crate) async fn end(key: &str, link: &mut RedisLink) -> RedisResult<Id> {
    link.allowance.set(REPLY_MAX);
    let last =
        cmd("XREVRANGE").arg(key).arg("+").arg("-").arg("COUNT").arg(1).query_async(&mut link.connection).await?;
    Ok(Entry::all(last)?.first().map_or(Id::ZERO, |last| last.id))
}
