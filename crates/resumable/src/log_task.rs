//! The task between a stream and its log, one for each stream of each instance.
//!
//! ```text
//!  the instance that writes     StreamSender::send ─▶ queue ─append─▶ log ─▶ store and readers
//!  the others                   log ─read─▶ store and readers
//! ```
//!
//! An instance reads until the log ends, or until it gets the claim: from [`SharedStreams::open`], or because no
//! other instance has one for longer than the patience. Then it ends the stream as failed, or as stopped if that was
//! requested.
//!
//! [`SharedStreams::open`]: super::SharedStreams::open

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use millstream::internal::log_queue::either;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::end::StreamEnd;
use crate::events;
use crate::kept_stream::KeptStream;
use crate::stream_log::{StreamLog, StreamLogError};

/// Time between two beats at an instance that writes, or that has readers. It is shorter than the second within which
/// an abandoned stream ends.
const BEAT: Duration = Duration::from_millis(250);
/// Time between two beats at an instance that neither writes nor has readers.
const IDLE: Duration = Duration::from_secs(2);
/// Time between two attempts to reach a log, at most.
const PAUSE: Duration = Duration::from_secs(1);

type LogResult<T> = Result<T, StreamLogError>;

/// The task. When it is dropped, the stream ends here if it has not yet.
pub(crate) struct LogTask {
    stream: Arc<KeptStream>,
    log: Arc<dyn StreamLog>,
    changed: Arc<Notify>,
}

impl LogTask {
    /// Returns `None` for a stream without a log, or one that has ended.
    pub(crate) fn new(stream: &Arc<KeptStream>) -> Option<Self> {
        let (log, changed) = stream.log()?;
        Some(Self { stream: Arc::clone(stream), log, changed })
    }

    pub(crate) async fn run(self) {
        let ran = match self.follow().await {
            Ok(Some(token)) => self.write(token).await,
            done => done.map(drop),
        };
        match ran {
            Ok(()) => {}
            // The readers return, and then follow the other instance.
            Err(StreamLogError::Lost) => self.stream.lose(false),
            Err(error) => {
                events::stream_lost(&error);
                self.stream.lose(true);
            }
        }
    }

    /// Reads until the log has ended, or this instance is to write.
    async fn follow(&self) -> LogResult<Option<u64>> {
        // `told` is whether the last beat has recorded readers.
        let (mut beats, mut told, mut stops, mut unclaimed) = (Instant::now(), false, false, None);
        while self.stream.end().is_none() {
            if let Some(token) = self.stream.token() {
                return Ok(Some(token));
            }
            if self.stream.take_stop() {
                self.patiently(|| self.log.request_stop()).await?;
            }
            self.catch_up().await?;
            let (now, is_read) = (Instant::now(), self.stream.is_read());
            if now >= beats || (is_read && !told) {
                let status = self.patiently(|| self.log.beat(None, is_read)).await?;
                (told, stops) = (is_read, status.stops);
                beats = now + if is_read { BEAT } else { IDLE };
                unclaimed = if status.is_claimed { None } else { Some(unclaimed.unwrap_or(now)) };
            }
            if unclaimed.is_some_and(|since| now >= since + self.stream.options().patience) {
                self.take_over(if stops { StreamEnd::Stopped } else { StreamEnd::Failed }).await?;
                continue;
            }
            let grown = async {
                match is_read {
                    true => self.log.grown(self.stream.next()).await,
                    // Without readers the next beat is soon enough.
                    false => pending().await,
                }
            };
            let _ = timeout_at(beats, either(self.changed.notified(), grown)).await;
        }
        Ok(None)
    }

    /// Ends a stream that no instance writes.
    async fn take_over(&self, end: StreamEnd) -> LogResult<()> {
        if let Some(token) = self.patiently(|| self.log.claim(self.stream.options().keep())).await? {
            self.catch_up().await?;
            if self.stream.promote(token) {
                self.stream.finish(end);
            }
        } else {
            // Another instance does it, or a process that has the claim is paused.
            sleep(BEAT).await;
        }
        Ok(())
    }

    async fn catch_up(&self) -> LogResult<()> {
        self.patiently(|| catch_up(&self.stream, &*self.log)).await
    }

    async fn write(&self, token: u64) -> LogResult<()> {
        let mut beats = Instant::now();
        while self.stream.end().is_none() {
            if let Some(batch) = self.stream.batch() {
                let end = batch.end.map(|end| (end, self.stream.options().ttl));
                self.patiently(|| self.log.append(token, batch.first, &batch.events, end)).await?;
                self.stream.appended(batch);
            }
            let now = Instant::now();
            if now >= beats {
                let is_read = self.stream.is_read();
                let status = self.patiently(|| self.log.beat(Some(token), is_read)).await?;
                self.stream.heed(&status);
                beats = now + BEAT;
            } else {
                // An error means that a beat is due.
                let _ = timeout_at(beats, self.changed.notified()).await;
            }
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    /// Calls `attempt` until it succeeds, or until the log was unreachable for longer than the patience.
    async fn patiently<'a, T, F>(&'a self, attempt: impl Fn() -> F) -> LogResult<T>
    where
        F: Future<Output = LogResult<T>> + 'a,
    {
        let (since, mut pause) = (Instant::now(), PAUSE / 32);
        loop {
            match attempt().await {
                Err(StreamLogError::Unreachable(_)) if since.elapsed() < self.stream.options().patience => {
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE);
                }
                done => return done,
            }
        }
    }
}

impl Drop for LogTask {
    fn drop(&mut self) {
        // Its runtime has ended.
        self.stream.lose(false);
    }
}

/// Reads what the log has and the stream has not.
pub(crate) async fn catch_up(stream: &KeptStream, log: &dyn StreamLog) -> LogResult<()> {
    while stream.end().is_none() {
        let from = stream.next();
        let page = log.read(from).await?;
        let more = page.more;
        stream.take_page(from, page);
        if !more {
            break;
        }
        tokio::task::consume_budget().await;
    }
    Ok(())
}
