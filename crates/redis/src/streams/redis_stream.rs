//! The log of one stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::RedisResult;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::pushing_link::{PushingLink, events_key, millis, unreachable};
use super::scripts::Script;
use crate::backoff::random;
use millstream::sse::log::LogFuture;
use millstream_resumable::{LogPage, LogStatus, StreamEnd, StreamLog, StreamLogError};

/// Size of the events of a page.
const PAGE: usize = 256 << 10;
/// Time after which a stream reads again although no event was announced.
const SILENT: Duration = Duration::from_secs(1);

type LogResult<T> = Result<T, StreamLogError>;
/// The answer, whether there are more events, the end, the time to live, the events.
type Found = (i64, bool, String, i64, Vec<Vec<u8>>);

#[derive(Debug)]
pub(super) struct RedisStream {
    link: Arc<PushingLink>,
    key: String,
    /// Key of the events, and the channel on which they are announced.
    events: String,
    epoch: u32,
    claim: u64,
    /// Token of the claim that this log has, or may have: its answer may be lost. 0 is none.
    token: AtomicU64,
    announced: Arc<Notify>,
    /// Number of the connection that is subscribed.
    subscribed: AtomicU64,
}

impl RedisStream {
    pub(super) fn new(link: &Arc<PushingLink>, key: String, epoch: u32, claim: Duration) -> Self {
        let (announced, events) = (Arc::default(), events_key(&key));
        link.news.add(&events, &announced);
        let (link, claim) = (Arc::clone(link), millis(claim));
        let (token, subscribed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { link, key, events, epoch, claim, token, announced, subscribed }
    }

    async fn read_page(&self, from: u64) -> LogResult<LogPage> {
        let _turn = self.link.reads.acquire().await;
        let read = self.link.call(Script::Read, &self.key, |call| {
            call.arg(self.epoch).arg(from).arg(PAGE);
        });
        let (answer, more, end, left, events): Found = read.await.map_err(unreachable)?;
        check(answer)?;
        let mut page = LogPage::default();
        (page.more, page.events) = (more, events.into_iter().map(Bytes::from).collect());
        let end = StreamEnd::from_name(&end).filter(|_| !more);
        page.end = end.map(|end| (end, Duration::from_millis(left.max(0) as u64)));
        Ok(page)
    }

    /// Subscribes the connection, unless it is. Returns whether it was.
    async fn subscribe(&self) -> RedisResult<bool> {
        let link = self.link.get().await?;
        if self.subscribed.load(Ordering::Acquire) == link.number {
            return Ok(true);
        }
        let subscribed = link.connection().subscribe(&self.events).await;
        self.link.checked(&link, subscribed).await?;
        self.subscribed.store(link.number, Ordering::Release);
        Ok(false)
    }
}

fn check(answer: i64) -> LogResult<i64> {
    match answer {
        -1 => Err(StreamLogError::Lost),
        -2 => Err(StreamLogError::Gone),
        _ => Ok(answer),
    }
}

impl StreamLog for RedisStream {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn claim(&self, keep: Duration) -> LogFuture<'_, LogResult<Option<u64>>> {
        Box::pin(async move {
            let token = random();
            let before = self.token.swap(token, Ordering::Relaxed);
            let claimed = self.link.call(Script::Claim, &self.key, |call| {
                call.arg(self.epoch).arg(self.claim).arg(token).arg(millis(keep));
            });
            let is_ours = check(claimed.await.map_err(unreachable)?)? == 1;
            if !is_ours {
                // That of this log may be the claim that was found.
                self.token.store(before, Ordering::Relaxed);
            }
            Ok(is_ours.then_some(token))
        })
    }

    fn append<'a>(
        &'a self,
        token: u64,
        first: u64,
        events: &'a [Bytes],
        end: Option<(StreamEnd, Duration)>,
    ) -> LogFuture<'a, LogResult<()>> {
        Box::pin(async move {
            let (end, ttl) = end.map_or(("", 0), |(end, ttl)| (end.as_str(), millis(ttl)));
            let appended = self.link.call(Script::Append, &self.key, |call| {
                call.arg(self.epoch).arg(token).arg(self.claim).arg(first).arg(end).arg(ttl);
                for event in events {
                    call.arg(&event[..]);
                }
            });
            check(appended.await.map_err(unreachable)?).map(drop)
        })
    }

    fn beat(&self, token: Option<u64>, is_read: bool) -> LogFuture<'_, LogResult<LogStatus>> {
        Box::pin(async move {
            let beat = self.link.call(Script::Beat, &self.key, |call| {
                let token = token.map_or_else(String::new, |token| token.to_string());
                call.arg(self.epoch).arg(token).arg(self.claim).arg(u8::from(is_read));
            });
            let answer: Vec<i64> = beat.await.map_err(unreachable)?;
            check(answer.first().copied().unwrap_or(-2))?;
            let at = |at: usize| answer.get(at).copied().unwrap_or_default();
            let mut status = LogStatus::default();
            (status.is_claimed, status.stops) = (at(1) == 1, at(2) == 1);
            status.unread = u64::try_from(at(3)).ok().map(Duration::from_millis);
            Ok(status)
        })
    }

    fn read(&self, from: u64) -> LogFuture<'_, LogResult<LogPage>> {
        Box::pin(self.read_page(from))
    }

    fn grown(&self, _from: u64) -> LogFuture<'_, ()> {
        Box::pin(async move {
            // After a new subscription events may be there that were not announced. An error waits, too.
            if !matches!(self.subscribe().await, Ok(false)) {
                let _ = timeout(SILENT, self.announced.notified()).await;
            }
        })
    }

    fn request_stop(&self) -> LogFuture<'_, LogResult<()>> {
        Box::pin(async move {
            let stopped = self.link.call(Script::Stop, &self.key, |call| {
                call.arg(self.epoch);
            });
            check(stopped.await.map_err(unreachable)?).map(drop)
        })
    }
}

impl Drop for RedisStream {
    fn drop(&mut self) {
        let is_last = self.link.news.remove(&self.events, &self.announced);
        let Ok(runtime) = Handle::try_current() else { return };
        let token = *self.token.get_mut();
        if token != 0 {
            let (link, key, epoch) = (Arc::clone(&self.link), std::mem::take(&mut self.key), self.epoch);
            drop(runtime.spawn(async move {
                // Without it the claim expires.
                let _: RedisResult<i64> = link.call(Script::Release, &key, |call| _ = call.arg(epoch).arg(token)).await;
            }));
        }
        if is_last && *self.subscribed.get_mut() != 0 {
            let (link, events) = (Arc::clone(&self.link), std::mem::take(&mut self.events));
            drop(runtime.spawn(async move {
                let Ok(open) = link.get().await else { return };
                if !link.news.is_awaited(&events) {
                    let _ = open.connection().unsubscribe(&events).await;
                }
                // A log of the same name may have subscribed before.
                if link.news.is_awaited(&events) {
                    let _ = open.connection().subscribe(&events).await;
                }
            }));
        }
    }
}
