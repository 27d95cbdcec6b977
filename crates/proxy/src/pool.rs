//! Idle connections to the upstream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::http1::{HeadLimits, Http1};
use super::stream::Stream;

/// The connections that wait for a request, the latest used last.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    /// Maximum number of idle connections.
    most: usize,
    /// Time after which an idle connection is closed.
    limit: Duration,
    heads: HeadLimits,
}

#[derive(Default)]
struct Idle {
    connections: Vec<(Http1, Instant)>,
    has_reaper: bool,
}

impl Pool {
    pub(crate) fn new(most: usize, limit: Duration, heads: HeadLimits) -> Self {
        Self { idle: Mutex::default(), most, limit, heads }
    }

    /// Begins to speak HTTP/1.1; `None` if hyper refuses the stream, which it never does.
    pub(crate) fn begin(&self, stream: Stream) -> Option<Http1> {
        Http1::new(stream, self.heads)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the most recently used connection, so that surplus connections reach the idle limit.
    pub(crate) fn take(&self) -> Option<Http1> {
        loop {
            let (mut connection, since) = self.idle().connections.pop()?;
            if since.elapsed() < self.limit && connection.poll_idle() {
                return Some(connection);
            }
        }
    }

    /// Keeps the connection for another request if it may carry one.
    pub(crate) fn put(self: &Arc<Self>, mut connection: Http1) {
        if !connection.is_ready() && !connection.poll_idle() {
            return;
        }
        let mut idle = self.idle();
        if idle.connections.len() < self.most {
            idle.connections.push((connection, Instant::now()));
            if !std::mem::replace(&mut idle.has_reaper, true) {
                drop(idle);
                tokio::spawn(reap(Reaping(Arc::downgrade(self)), self.limit));
            }
        }
    }

    /// Closes connections that are idle for too long or closed by the upstream. Returns whether connections remain.
    fn reap(&self) -> bool {
        let mut at = 0;
        loop {
            let mut idle = self.idle();
            if at >= idle.connections.len() {
                idle.has_reaper = !idle.connections.is_empty();
                return idle.has_reaper;
            }
            // Removes one connection at a time, so that requests can take the others meanwhile. Requests take and add
            // connections at the end of the list.
            let (mut connection, since) = idle.connections.remove(at);
            drop(idle);
            if since.elapsed() < self.limit && connection.poll_idle() {
                let mut idle = self.idle();
                if idle.connections.len() < self.most {
                    at = at.min(idle.connections.len());
                    idle.connections.insert(at, (connection, since));
                    at += 1;
                }
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.idle().connections.len()
    }
}

/// Runs while the pool has connections.
async fn reap(reaping: Reaping, limit: Duration) {
    loop {
        sleep(limit / 2).await;
        if !reaping.0.upgrade().is_some_and(|pool| pool.reap()) {
            return;
        }
    }
}

/// Lets the pool start another reaper when this one is dropped. The runtime may drop it before its first poll.
struct Reaping(Weak<Pool>);

impl Drop for Reaping {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.idle().has_reaper = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::http1::FIELDS;
    use super::*;

    #[test]
    fn a_reaper_whose_runtime_ends_before_it_begins_gives_way_to_another() {
        let pool = Arc::new(Pool::new(1, Duration::from_secs(60), HeadLimits { bytes: 1000, fields: FIELDS }));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        pool.idle().has_reaper = true;
        runtime.spawn(reap(Reaping(Arc::downgrade(&pool)), pool.limit));
        drop(runtime);
        assert!(!pool.idle().has_reaper);
    }
}
