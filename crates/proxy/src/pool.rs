//! Idle connections to the upstream, and the HTTP/2 connections of clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client_header::ClientHeader;
use super::http1::{HeadLimits, Http1};
use super::http2::Connections;
use super::stream::Stream;

/// The connections that wait for a request, the latest used last.
pub(crate) struct Pool {
    idle: Mutex<Idle>,
    /// Maximum number of idle connections, and of clients with HTTP/2 connections.
    most: usize,
    /// Time after which an idle connection is closed, and an HTTP/2 connection of a client gets no more requests.
    limit: Duration,
    heads: HeadLimits,
}

#[derive(Default)]
struct Idle {
    connections: Vec<Kept<Http1>>,
    /// The HTTP/2 connections of each client, with the PROXY protocol only.
    http2: Vec<Kept<Arc<Connections>>>,
    has_reaper: bool,
}

struct Kept<T> {
    connection: T,
    header: ClientHeader,
    since: Instant,
}

/// Where a connection goes after its response.
pub(crate) struct PoolReturn {
    pub(crate) pool: Arc<Pool>,
    /// The PROXY header with which the connection has begun.
    pub(crate) header: ClientHeader,
}

impl PoolReturn {
    /// Keeps the connection for another request of the client if it may carry one.
    pub(crate) fn put(self, connection: Http1) {
        self.pool.put(connection, self.header);
    }
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

    /// Takes the most recently used connection that has begun with this header, so that surplus connections reach the
    /// idle limit.
    pub(crate) fn take(&self, header: &ClientHeader) -> Option<Http1> {
        loop {
            let mut idle = self.idle();
            let at = idle.connections.iter().rposition(|kept| kept.header == *header)?;
            let Kept { mut connection, since, .. } = idle.connections.remove(at);
            drop(idle);
            if since.elapsed() < self.limit && connection.poll_idle() {
                return Some(connection);
            }
        }
    }

    /// Closes the connection that is idle for the longest time.
    pub(crate) fn close_oldest(&self) {
        let mut idle = self.idle();
        let oldest = (!idle.connections.is_empty()).then(|| idle.connections.remove(0));
        drop(idle);
        drop(oldest);
    }

    fn put(self: &Arc<Self>, mut connection: Http1, header: ClientHeader) {
        if self.most == 0 || !connection.is_ready() && !connection.poll_idle() {
            return;
        }
        let mut idle = self.idle();
        // The oldest connection is closed, because its client may have left.
        let surplus = (idle.connections.len() >= self.most).then(|| idle.connections.remove(0));
        idle.connections.push(Kept { connection, header, since: Instant::now() });
        self.start_reaper(idle);
        drop(surplus);
    }

    /// Returns the HTTP/2 connections for requests with this header, or new ones like `model`.
    pub(crate) fn http2(self: &Arc<Self>, header: &ClientHeader, model: &Connections) -> Arc<Connections> {
        let mut idle = self.idle();
        let found = idle.http2.iter().position(|kept| kept.header == *header).map(|at| idle.http2.remove(at));
        let connection = match &found {
            Some(kept) if kept.since.elapsed() < self.limit => Arc::clone(&kept.connection),
            _ => Arc::new(model.like()),
        };
        if self.most > 0 {
            // The oldest connection is closed, because its client may have left.
            let surplus = (idle.http2.len() >= self.most).then(|| idle.http2.remove(0));
            let (header, since) = (header.clone(), Instant::now());
            idle.http2.push(Kept { connection: Arc::clone(&connection), header, since });
            self.start_reaper(idle);
            drop(surplus);
        }
        connection
    }

    fn start_reaper(self: &Arc<Self>, mut idle: MutexGuard<'_, Idle>) {
        if !std::mem::replace(&mut idle.has_reaper, true) {
            drop(idle);
            tokio::spawn(reap(Reaping(Arc::downgrade(self)), self.limit));
        }
    }

    /// Closes connections that are idle for too long or closed by the upstream. Returns whether connections remain.
    fn reap(&self) -> bool {
        let mut idle = self.idle();
        let old = idle.http2.partition_point(|kept| kept.since.elapsed() >= self.limit);
        let old: Vec<_> = idle.http2.drain(..old).collect();
        drop(idle);
        // Dropped without the lock, because that wakes tasks.
        drop(old);
        let mut at = 0;
        loop {
            let mut idle = self.idle();
            if at >= idle.connections.len() {
                idle.has_reaper = !idle.connections.is_empty() || !idle.http2.is_empty();
                return idle.has_reaper;
            }
            // Removes one connection at a time, so that requests can take the others meanwhile. If they change the
            // list, some connections are checked next time.
            let mut kept = idle.connections.remove(at);
            drop(idle);
            if kept.since.elapsed() < self.limit && kept.connection.poll_idle() {
                let mut idle = self.idle();
                if idle.connections.len() < self.most {
                    at = at.min(idle.connections.len());
                    idle.connections.insert(at, kept);
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

    #[tokio::test(start_paused = true)]
    async fn an_http2_connection_of_a_client_gets_no_request_after_the_idle_limit() {
        let pool = Arc::new(Pool::new(1, Duration::from_secs(60), HeadLimits { bytes: 1000, fields: FIELDS }));
        // The reaper would remove it too.
        pool.idle().has_reaper = true;
        let (header, model) = (Some(bytes::Bytes::from_static(b"PROXY UNKNOWN\r\n")), Connections::default());
        let first = pool.http2(&header, &model);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(Arc::ptr_eq(&pool.http2(&header, &model), &first));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!Arc::ptr_eq(&pool.http2(&header, &model), &first));
    }
}
