//! Pages of the log for readers that come back.

use redis::{RedisError, RedisResult, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Shared;
use super::backoff::Backoff;
use super::entry::Entry;
use super::error::code;
use super::id::Id;
use super::link::{Link, Server};
use super::seen::{Seen, Verdict};
use super::tail::PAGE;
use crate::http::{Replay, ReplayError};

/// The connection that all replays share; made anew when one needs it.
#[derive(Debug, Default)]
pub(super) struct Shelf(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    link: Option<Link>,
    backoff: Backoff,
    /// Nobody tries to connect before then, and what the last attempt said.
    failed: Option<(Instant, RedisError)>,
}

impl Shelf {
    pub(super) fn new(link: Link) -> Self {
        Self(Mutex::new(Kept { link: Some(link), ..Kept::default() }))
    }

    /// The connection, or a new one. A thousand readers that come back at once make one attempt.
    async fn link(&self, server: &Server) -> RedisResult<Link> {
        let mut kept = self.0.lock().await;
        if let Some(link) = &kept.link {
            return Ok(link.clone());
        }
        if let Some((_, e)) = kept.failed.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Err(e.clone());
        }
        match server.connect(std::time::Duration::ZERO).await {
            Ok(link) => {
                kept.backoff.reset();
                kept.failed = None;
                Ok(kept.link.insert(link).clone())
            }
            Err(e) => {
                let until = Instant::now() + kept.backoff.next();
                kept.failed = Some((until, e.clone()));
                Err(e)
            }
        }
    }

    /// Does not keep `broken` any longer.
    async fn discard(&self, broken: &Link) {
        let mut kept = self.0.lock().await;
        kept.link.take_if(|link| link.peer == broken.peer);
    }
}

/// The page behind `after`, up to and with `upto`.
pub(super) async fn replay(shared: &Shared, after: &str, upto: &str) -> Result<Replay, ReplayError> {
    let (Some(after), Some(upto)) = (Id::parse(after), Id::parse(upto)) else { return Err(ReplayError::Unknown) };
    let unreachable = |e: RedisError| ReplayError::Unreachable(Box::new(e));
    let mut events = Vec::new();
    let (mut from, mut gap) = (after, None);
    // One turn, unless all of a page were doubles.
    loop {
        let entries = page(shared, from, upto).await.map_err(unreachable)?;
        let more = entries.len() > PAGE;
        if from != Id::ZERO && entries.first().is_none_or(|first| first.id != from) {
            // Of what came behind an entry that is gone nobody knows the first.
            gap = Some(None);
        }
        let mut seen = Seen::behind(from);
        for entry in entries {
            let judged = entry.stamp.map_or(Verdict::Next, |stamp| seen.judge(entry.id, stamp));
            if entry.id == from {
                continue;
            }
            let missing = match judged {
                Verdict::Double => {
                    shared.places().add_double(entry.id);
                    None
                }
                Verdict::After(missing) => {
                    shared.places().add_hole(entry.id);
                    Some(Some(missing))
                }
                Verdict::Next => shared.places().has_hole(entry.id).then_some(None),
            };
            from = entry.id;
            if shared.places().is_double(entry.id) {
                continue;
            }
            if missing.is_some() && !events.is_empty() {
                // A page tells what is missing before its first event: this one is the first of the next.
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

fn answer(events: Vec<(String, crate::http::Event)>, gap: Option<Option<u64>>) -> Replay {
    let replay = Replay::new(events);
    match gap {
        Some(missed) => replay.gap(missed),
        None => replay,
    }
}

/// The entries from `from` to `upto`, with both; more than a page if there are more.
async fn page(shared: &Shared, from: Id, upto: Id) -> RedisResult<Vec<Entry>> {
    let mut range = cmd("XRANGE");
    range.arg(&shared.key).arg(from.to_string()).arg(upto.to_string()).arg("COUNT").arg(PAGE + 1);
    let mut again = false;
    loop {
        let mut link = shared.shelf.link(&shared.server).await?;
        match range.query_async::<Value>(&mut link.connection).await {
            Ok(entries) => return Entry::all(entries),
            Err(e) => {
                shared.shelf.discard(&link).await;
                // It may have been lost long ago, which nobody has noticed.
                if again || e.is_timeout() || code(&e).is_some() {
                    return Err(e);
                }
                again = true;
            }
        }
    }
}
