//! Writer: appends in order, and each event once.
//!
//! ```text
//!  queue ─▶ batch ─MULTI … EXEC─▶ confirmed: removed
//!             ▲                └─▶ no reply: outcome unknown
//!             └── missing appends ── fence the old connection, find our last entry ◀┘
//! ```
//!
//! A batch is executed completely or not at all, and the next one is sent when its outcome is known. If the connection
//! breaks before, Redis may have executed it, may still have it in a buffer and execute it later, or may never have
//! received it. So the old connection is first closed at the server, which discards the buffer; then the log is
//! searched backwards for the last entry of this writer; then the missing appends are sent again.

use redis::{RedisResult, cmd, pipe};
use tokio::time::sleep;

use super::backoff::Backoff;
use super::entry::{Entry, Fields};
use super::id::Id;
use super::link::{ConnectionId, RedisLink};
use super::seen::Stamp;
use super::shared::RedisShared;
use super::stats::Part;
use millstream::internal::log_queue::{Append, Size};

const SEARCH: usize = 1 << 20;
/// Maximum size of a batch; a single append may be larger.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

/// Returns whether the next append belongs to the batch.
fn batch() -> impl FnMut(&Fields) -> bool {
    let (mut appends, mut bytes) = (0, 0);
    move |fields| {
        appends += 1;
        bytes += fields.bytes();
        appends == 1 || (appends <= BATCH && bytes <= BATCH_BYTES)
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    batch: Vec<Append<Fields>>,
    link: Option<RedisLink>,
    /// Connection that sent the batch, if its outcome is unknown.
    sent_by: Option<ConnectionId>,
    /// An entry known to be in the log, by any writer: the next entry of this writer is after it.
    confirmed: Id,
    backoff: Backoff,
}

impl Writer {
    pub(crate) fn new(end: Id) -> Self {
        let backoff = Backoff::default();
        Self { batch: Vec::new(), link: None, sent_by: None, confirmed: end, backoff }
    }

    /// Appends queued events forever. The future may be dropped at any time, and `run` called again.
    pub(crate) async fn run(&mut self, shared: &RedisShared) {
        loop {
            if self.batch.is_empty() {
                shared.queue.ready().await;
                self.batch = shared.queue.take(batch());
            }
            match self.append(shared).await {
                Ok(()) => self.backoff.reset(),
                Err(e) => {
                    self.link = None;
                    shared.stats.down(Part::Writer, &shared.server.address, &e);
                    sleep(self.backoff.next()).await;
                }
            }
        }
    }

    pub(crate) fn give_up(&mut self, shared: &RedisShared) {
        let Some(waiting) = shared.queue.take_left() else { return };
        shared.stats.given_up(self.batch.len() + waiting.len());
        shared.queue.settle(self.batch.drain(..).chain(waiting));
        (self.link, self.sent_by) = (None, None);
    }

    async fn append(&mut self, shared: &RedisShared) -> RedisResult<()> {
        if self.sent_by.is_some() {
            // The outcome on that connection is unknown, so it is not used again.
            self.link = None;
        }
        let link = match &mut self.link {
            Some(link) => link,
            None => {
                let mut link = shared.server.connect(std::time::Duration::ZERO).await?;
                if let Some(peer) = &self.sent_by {
                    link.fence(peer).await?;
                    if let Some((number, id)) = last_of(shared, &mut link, self.confirmed).await? {
                        let arrived = self.batch.partition_point(|append| append.number <= number);
                        self.confirmed = id;
                        shared.stats.appended(arrived);
                        shared.queue.settle(self.batch.drain(..arrived));
                    }
                    self.sent_by = None;
                }
                shared.stats.up(Part::Writer, &shared.server.address);
                self.link.insert(link)
            }
        };
        if self.batch.is_empty() {
            return Ok(());
        }

        let mut batch = pipe();
        batch.atomic();
        for append in &self.batch {
            let mut add = cmd("XADD");
            add.arg(&shared.key).arg("MAXLEN").arg("~").arg(shared.max_len).arg("*");
            append.item.write(Stamp { writer: shared.writer_id, number: append.number }, &mut add);
            batch.add_command(add);
        }
        if let Some(expiry) = shared.expire_after {
            batch.cmd("PEXPIRE").arg(&shared.key).arg(expiry.as_millis() as u64).ignore();
        }
        self.sent_by = Some(link.peer.clone());
        let ids: Vec<String> = batch.query_async(&mut link.connection).await?;
        self.sent_by = None;
        self.confirmed = ids.last().and_then(|id| Id::parse(id)).unwrap_or(self.confirmed);
        shared.stats.appended(self.batch.len());
        shared.queue.settle(self.batch.drain(..));
        Ok(())
    }
}

async fn last_of(shared: &RedisShared, link: &mut RedisLink, after: Id) -> RedisResult<Option<(u64, Id)>> {
    let mut end = "+".to_owned();
    loop {
        let plan = shared.sizes.plan(SEARCH);
        let mut search = cmd("XREVRANGE");
        search.arg(&shared.key).arg(&end).arg("-").arg("COUNT").arg(plan.entries);
        link.allowance.set(plan.reply);
        let found = search.query_async(&mut link.connection).await;
        if link.allowance.was_exceeded() {
            // The search starts again on a new connection.
            shared.sizes.refused(plan);
        }
        let entries = Entry::all(found?)?;
        shared.sizes.learn(&entries);
        for entry in entries.iter().take_while(|entry| entry.id > after) {
            if let Some(stamp) = entry.stamp.filter(|stamp| stamp.writer == shared.writer_id) {
                return Ok(Some((stamp.number, entry.id)));
            }
        }
        match entries
            .last()
            .filter(|last| last.id > after && entries.len() == plan.entries)
            .and_then(|last| last.id.before())
        {
            Some(before) => end = before.to_string(),
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millstream::internal::log_queue::Queue;
    use millstream::sse::Event;

    #[test]
    fn batches_are_bounded_and_in_order() {
        let queue = Queue::new(1000, 1 << 30);
        let push = |bytes| queue.push(Fields::new(&Event::new().data("x".repeat(bytes)))).unwrap();
        (0..=BATCH).for_each(|_| push(1));
        [BATCH_BYTES, 1, 1].into_iter().for_each(push);
        let take = || queue.take(batch()).iter().map(|append| append.number).collect::<Vec<_>>();
        let last = BATCH as u64 + 1;
        assert_eq!(take(), (1..last).collect::<Vec<_>>());
        assert_eq!(take(), [last], "the next append is too large for this batch");
        assert_eq!(take(), [last + 1], "the large append is a batch of its own");
        assert_eq!(take(), [last + 2, last + 3]);
        assert!(take().is_empty());
    }
}
