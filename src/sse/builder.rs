//! How a hub is to be.

use std::sync::Arc;
use std::time::Duration;

use super::hub::Hub;
use super::ring::Limits;
use super::shared::Config;
use crate::sse::log::Log;

/// Longest times: what is longer is meant as never.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What happens to a reader that is further behind than [`HubBuilder::queue`] allows, or behind what the ring has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LagPolicy {
    /// It goes on with the newest events that the queue allows, after a [gap](Hub#gaps) that counts what is missing.
    #[default]
    DropOldest,
    /// It goes on with the newest event, after a gap that counts what is missing. With a queue of 1 it never gets
    /// another: for readers that want the state, not the steps to it.
    Latest,
    /// Its stream ends when it reads again. It will connect again, and go on behind the last event it had.
    Disconnect,
    /// Nobody misses anything: [`Hub::send`] fails with [`SendError::Full`](super::SendError::Full), and
    /// [`Hub::send_wait`] waits for the slowest reader. One that
    /// holds it up for longer than [`HubBuilder::patience`] is disconnected. With a [log](HubBuilder::log) nobody can be
    /// made to wait, and this is [`LagPolicy::Disconnect`].
    Block,
}

/// Settings of a [`Hub`]; made by [`Hub::builder`].
#[derive(Debug)]
#[must_use = "there is no hub before build"]
pub struct HubBuilder {
    config: Config,
    log: Option<Arc<dyn Log>>,
}

impl HubBuilder {
    pub(super) fn new() -> Self {
        let limits = Limits { count: 1000, bytes: 16 << 20, age: None };
        let config = Config {
            limits,
            queue: 1000,
            slow: LagPolicy::default(),
            patience: Duration::from_secs(10),
            keep_alive: Some(Duration::from_secs(15)),
            subscribers: usize::MAX,
            retry: Duration::from_secs(1),
        };
        Self { config, log: None }
    }

    /// How many events the ring keeps for readers that come back; 1000 unless set. It has room for
    /// [`queue`](Self::queue) events in any case.
    pub fn replay(mut self, events: usize) -> Self {
        self.config.limits.count = events;
        self
    }

    /// Most bytes of events in the ring, as they are sent; 16 MiB unless set. The newest event is kept whatever its size.
    pub fn replay_bytes(mut self, bytes: usize) -> Self {
        self.config.limits.bytes = bytes;
        self
    }

    /// How long an event stays in the ring, which is looked at when the next is sent and when a reader comes back. For as
    /// long as there is room, unless set.
    pub fn replay_age(mut self, age: Duration) -> Self {
        self.config.limits.age = Some(age.min(LONG));
        self
    }

    /// After what time without an event a reader gets a comment, so that it and what is between can tell that the
    /// connection lives: between half of this time and all of it. 15 s unless set; zero turns it off. In each
    /// runtime there is one task with one timer for all readers of all hubs with the same period, while there are any.
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.config.keep_alive = Some(period.min(LONG)).filter(|period| !period.is_zero());
        self
    }

    /// What happens to slow readers; [`LagPolicy::DropOldest`] unless set.
    pub fn slow(mut self, slow: LagPolicy) -> Self {
        self.config.slow = slow;
        self
    }

    /// How many events a reader may be behind before it is slow, at least 1; 1000 unless set. What is queued is in the ring,
    /// once for all. A reader that comes back may be behind by all that the ring has.
    pub fn queue(mut self, events: usize) -> Self {
        self.config.queue = events.max(1) as u64;
        self
    }

    /// With [`LagPolicy::Block`]: for how long [`Hub::send_wait`] waits for readers before it gives up the slowest; 10 s
    /// unless set.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience.min(LONG);
        self
    }

    /// Most subscribers at a time; no limit unless set.
    pub fn subscribers(mut self, max: usize) -> Self {
        self.config.subscribers = max;
        self
    }

    /// How long readers whose stream ends are told to wait before they connect again; 1 s unless set.
    pub fn retry(mut self, retry: Duration) -> Self {
        self.config.retry = retry;
        self
    }

    /// Has the events go through a log that other hubs may share. The ring stays, for those that are not far behind.
    pub fn log(mut self, log: impl Log) -> Self {
        self.log = Some(Arc::new(log));
        self
    }

    /// Makes the hub.
    ///
    /// # Panics
    ///
    /// With a [log](Self::log), outside a tokio runtime: that is where it runs.
    #[track_caller]
    pub fn build(self) -> Hub {
        let Self { mut config, log } = self;
        config.limits.count = config.limits.count.max(usize::try_from(config.queue).unwrap_or(usize::MAX));
        if log.is_some() && config.slow == LagPolicy::Block {
            config.slow = LagPolicy::Disconnect;
        }
        Hub::start(config, log)
    }
}
