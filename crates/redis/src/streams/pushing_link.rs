//! One connection for all calls and notifications of an instance. It is opened again when it is lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, cmd, pipe};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;

use super::news::News;
use super::scripts::{self, Script};
use crate::backoff::Backoff;
use crate::error::{code, describe};
use crate::events;
use crate::link::{RedisLink, Server};
use millstream_resumable::StreamLogError;

/// Maximum number of replies with events at a time.
const READS: usize = 16;

#[derive(Debug)]
pub(super) struct PushingLink {
    pub(super) server: Server,
    pub(super) news: Arc<News>,
    pub(super) reads: Semaphore,
    open: AsyncMutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    link: Option<Arc<Loaded>>,
    /// Number of connections until now.
    connections: u64,
    backoff: Backoff,
    /// The last failure to connect, and until when it counts.
    failed: Option<(Instant, RedisError)>,
}

/// A connection on which the scripts are loaded.
#[derive(Debug)]
pub(super) struct Loaded {
    link: RedisLink,
    /// Number of the connection, from 1 on.
    pub(super) number: u64,
    digests: Vec<String>,
}

impl Loaded {
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.link.connection.clone()
    }

    pub(super) fn script(&self, script: Script) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.digests[script as usize]);
        call
    }
}

impl PushingLink {
    pub(super) fn new(server: Server) -> Self {
        Self { server, news: Arc::default(), reads: Semaphore::new(READS), open: AsyncMutex::default() }
    }

    /// Returns the connection. Many calls that find it lost connect once.
    pub(super) async fn get(&self) -> RedisResult<Arc<Loaded>> {
        let mut open = self.open.lock().await;
        if let Some(link) = &open.link {
            return Ok(Arc::clone(link));
        }
        if let Some((_, error)) = open.failed.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Err(error.clone());
        }
        match self.connect(open.connections + 1).await {
            Ok(link) => {
                open.connections = link.number;
                if open.failed.take().is_some() {
                    events::back(&self.server.address);
                }
                open.backoff.reset();
                Ok(Arc::clone(open.link.insert(Arc::new(link))))
            }
            Err(error) => {
                if open.failed.is_none() {
                    events::away(&self.server.address, &error);
                }
                open.failed = Some((Instant::now() + open.backoff.next(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self, number: u64) -> RedisResult<Loaded> {
        let news = Arc::clone(&self.news);
        let heard = move |push| {
            news.heard(&push);
            Ok::<_, RedisError>(())
        };
        let mut link = self.server.connect_pushing(heard).await?;
        let mut load = pipe();
        for script in scripts::ALL {
            load.cmd("SCRIPT").arg("LOAD").arg(script);
        }
        let digests = load.query_async(&mut link.connection).await?;
        Ok(Loaded { link, number, digests })
    }

    /// Calls a script with the two keys of a log.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: Script,
        key: &str,
        args: impl FnOnce(&mut Cmd),
    ) -> RedisResult<T> {
        let link = self.get().await?;
        let mut call = link.script(script);
        call.arg(2).arg(key).arg(events_key(key));
        args(&mut call);
        let called = call.query_async(&mut link.connection()).await;
        self.checked(&link, called).await
    }

    /// Forgets a connection that is lost, or whose server has forgotten the scripts.
    pub(super) async fn checked<T>(&self, link: &Arc<Loaded>, answer: RedisResult<T>) -> RedisResult<T> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if code(&error).is_none_or(|code| matches!(&*code, "NOSCRIPT" | "READONLY" | "MASTERDOWN")) {
            let mut open = self.open.lock().await;
            if open.link.as_ref().is_some_and(|open| Arc::ptr_eq(open, link)) {
                open.link = None;
            }
        }
        Err(error)
    }
}

/// Returns the key of the events, on which they are also announced.
pub(super) fn events_key(key: &str) -> String {
    format!("{key}:events")
}

pub(super) fn unreachable(error: RedisError) -> StreamLogError {
    StreamLogError::Unreachable(describe(error).into())
}

pub(super) fn millis(time: Duration) -> u64 {
    // Redis adds the time of day to an expiry, so half the range means never.
    u64::try_from(time.as_millis()).map_or(u64::MAX / 4, |millis| millis.clamp(1, u64::MAX / 4))
}
