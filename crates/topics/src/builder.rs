//! Options of topics.

use std::fmt;
use std::time::Duration;

use http::request::Parts;
use millstream::Spread;
use millstream::internal::Draws;

/// Decides whether a request may read a topic.
pub(crate) type Allow = Box<dyn Fn(&Parts, &str) -> bool + Send + Sync>;

/// Builder of [`Topics`](crate::Topics), returned by [`Topics::builder`](crate::Topics::builder) and
/// [`Topics::public`](crate::Topics::public).
#[must_use = "there are no topics before build"]
pub struct TopicsBuilder {
    pub(crate) allow: Allow,
    pub(crate) options: Options,
    pub(crate) readers: usize,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) waits: bool,
    pub(crate) topics: usize,
    pub(crate) name_len: usize,
    pub(crate) id_len: usize,
    pub(crate) body_len: usize,
    pub(crate) keep_alive: Duration,
    pub(crate) retry: Draws,
}

impl TopicsBuilder {
    pub(crate) fn new(allow: Allow) -> Self {
        let options = Options {
            waits: false,
            topics: 32,
            name_len: 256,
            id_len: 4096,
            body_len: 16 << 10,
            keep_alive: Duration::from_secs(15),
            retry: Draws::new(Duration::from_secs(1)..=Duration::from_secs(3)),
        };
        Self { allow, options, readers: usize::MAX }
    }

    /// Sets whether readers wait for topics that do not exist: topics that are not yet
    /// [inserted](crate::Topics::insert), and topics that have ended. `false` by default: a request for an unknown topic
    /// is answered with `404 Not Found`, and a response ends when all of its topics have ended.
    ///
    /// A reader that waits gets all events from the insertion on, while the topic exists. Insert topics before the server
    /// accepts connections: a reader that comes earlier waits for them, and without this option it is refused.
    pub fn wait_for_topics(mut self, wait: bool) -> Self {
        self.options.waits = wait;
        self
    }

    /// Sets the maximum number of topics of a reader; 32 by default. More are answered with `400 Bad Request`.
    pub fn topics(mut self, max: usize) -> Self {
        self.options.topics = max;
        self
    }

    /// Sets the maximum length in bytes of the name of a topic; 256 by default. Longer ones are answered with `400 Bad
    /// Request`, and cannot be inserted.
    pub fn name_len(mut self, max: usize) -> Self {
        self.options.name_len = max;
        self
    }

    /// Sets the maximum length in bytes of the [composite id](crate::Topics#ids); 4096 by default. Clients send it in a header,
    /// whose length servers and proxies limit, often to 8 KiB.
    ///
    /// A request is answered with `400 Bad Request` if the names, the positions and a reserve of 29 bytes for each
    /// shorter position do not fit. If a topic has longer ids later, and they do not fit, the topic ends for the reader
    /// with the reason `id_too_long`.
    pub fn id_len(mut self, max: usize) -> Self {
        self.options.id_len = max;
        self
    }

    /// Sets the maximum length in bytes of the body of a `POST`; 16 KiB by default. Longer ones are answered with `413
    /// Content Too Large`.
    pub fn body_len(mut self, max: usize) -> Self {
        self.options.body_len = max;
        self
    }

    /// Sets the maximum number of readers at a time; unlimited by default. Beyond that requests are answered with `503
    /// Service Unavailable`.
    pub fn readers(mut self, max: usize) -> Self {
        self.readers = max;
        self
    }

    /// Sets the period after which a silent response gets a comment, as [`KeepAlive`](millstream::sse::KeepAlive) does;
    /// 15 s by default, zero disables it. The comments of hubs are left out, so a hub that is read as a topic only needs
    /// no [`keep_alive`](millstream::sse::HubBuilder::keep_alive).
    pub fn keep_alive(mut self, period: Duration) -> Self {
        self.options.keep_alive = period;
        self
    }

    /// Sets the delay after which readers reconnect when their response ends, as
    /// [`HubBuilder::retry`](millstream::sse::HubBuilder::retry) does; 1 s to 3 s by default. `Retry-After` of refused
    /// readers is drawn from the same range.
    pub fn retry(mut self, retry: impl Into<Spread>) -> Self {
        self.options.retry = Draws::new(retry);
        self
    }
}

impl fmt::Debug for TopicsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicsBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
