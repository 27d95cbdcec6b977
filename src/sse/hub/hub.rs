//! The hub: sends events, admits subscribers, and closes.

use std::fmt;
use std::sync::Arc;

use http::{Request, Response};

use super::builder::HubBuilder;
use super::request;
use crate::body::event_body::EventBody;
use crate::sse::body::{Coding, SeatState};
use crate::sse::error::{SendError, SubscribeError};
use crate::sse::event::{Event, EventId};
use crate::sse::log::{Log, Sink};
use crate::sse::ring::{HubShared, LagPolicy};
use crate::sse::stats::HubStats;

/// Sends events to many readers: [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html)
/// with ids, replay after a lost connection, keep-alive, and a policy for slow readers.
///
/// Clones are handles to the same hub. [`send`](Self::send) encodes an event once, into a ring that all readers share;
/// a reader is a position in that ring, without its own queue, task or timer.
///
/// ```no_run
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use hyper::Request;
/// use millstream::net::TcpListener;
/// use millstream::server;
/// use millstream::sse::{Event, Hub, LagPolicy};
///
/// #[tokio::main]
/// async fn main() -> std::io::Result<()> {
///     let hub = Hub::builder().replay(10_000).lag_policy(LagPolicy::Disconnect).subscribers(50_000).build();
///
///     let clock = hub.clone();
///     tokio::spawn(async move {
///         for second in 0.. {
///             let event = Event::new().event("tick").data(format!("second {second}"));
///             if clock.send(event).is_err() {
///                 break;
///             }
///             tokio::time::sleep(Duration::from_secs(1)).await;
///         }
///     });
///
///     let service = tower::service_fn(move |request: Request<server::RequestBody>| {
///         let answer = hub.subscribe(&request);
///         async { Ok::<_, Infallible>(answer) }
///     });
///     server::serve(TcpListener::bind("127.0.0.1:8080").await?, service).await
/// }
/// ```
///
/// # Reconnecting
///
/// Each event has an id: the one set on the event, or a number with a prefix that is unique to this hub. A disconnected
/// reader sends the last id it received, as browsers do, and continues with the next event: no event is lost or
/// repeated as long as the [ring](HubBuilder::replay) or the [log](HubBuilder::log) holds those events.
///
/// # Gaps
///
/// If a reader can no longer get some events, it gets an event named `gap` without an id, before the events that
/// follow:
///
/// ```text
/// event: gap
/// data: {"reason":"slow","missed":12}
/// ```
///
/// `missed` is their number, or `null` if it is unknown. The reason is
///
/// | | |
/// |---|---|
/// | `slow` | the reader was too slow, see [`LagPolicy`] |
/// | `expired` | it reconnected after the event behind its id was gone, or its id is unknown; the events of the [ring](HubBuilder::replay) follow, not older ones of a log |
/// | `lost` | the log has lost events |
/// | `unreachable` | the log is unreachable for earlier events; the events of this hub follow |
///
/// # Cost of a reader
///
/// Over HTTP/1 on [`serve`](crate::server::serve()), with and without TLS, the hub writes to the connections of its
/// readers itself: one task for each worker thread sends to its part of them in one pass, all waiting events of a
/// reader in one call. Such a reader has neither hyper's state nor a wake-up for each event. That needs a service whose
/// response body is [`EventBody`], or [`HubBuilder::past_layers`] if the body is inside another type, such as axum's
/// `Body`. Otherwise it is polled by the task of its connection, as over HTTP/2. [`HubStats::direct`] tells how many
/// readers are written to directly.
///
/// # Slow readers
///
/// A reader whose connection is full is polled by its task until it has caught up. A reader that does not read at all
/// keeps its place and its buffers in the socket and the connection. The policy takes effect when it reads again. If it
/// never does, the limits of the server close its connection.
///
/// # End of streams
///
/// A stream ends when its connection ends, when [`close`](Self::close) is called, or when the last handle is dropped.
/// It also ends when the reader has reached its [age](HubBuilder::max_age). The server can end it, by the
/// [`GracefulClose`](crate::body::GracefulClose) of the response; when it [drains](crate::server::Server::drain), it ends
/// many streams one after another. If the connection is still open, the last bytes of the stream are the `retry:` of
/// [`HubBuilder::retry`], drawn for this reader.
#[derive(Clone)]
pub struct Hub(Arc<Alive>);

struct Alive {
    shared: Arc<HubShared>,
    log: Option<Arc<dyn Log>>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl HubBuilder {
    /// Builds the hub.
    ///
    /// # Panics
    ///
    /// Panics with a [log](Self::log) outside of a tokio runtime, which runs the log.
    #[track_caller]
    pub fn build(self) -> Hub {
        let Self { mut config, log } = self;
        config.limits.count = config.limits.count.max(usize::try_from(config.queue).unwrap_or(usize::MAX));
        if log.is_some() && config.slow == LagPolicy::Block {
            config.slow = LagPolicy::Disconnect;
        }
        let shared = Arc::new(HubShared::new(config, log.is_none()));
        if let Some(log) = &log {
            let sink = Sink::new(&shared, shared.closing());
            drop(tokio::spawn(Arc::clone(log).run(sink)));
        }
        Hub(Arc::new(Alive { shared, log }))
    }
}

impl Hub {
    /// Creates a hub with the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder with default options.
    pub fn builder() -> HubBuilder {
        HubBuilder::new()
    }

    pub(super) fn shared(&self) -> &Arc<HubShared> {
        &self.0.shared
    }

    /// Sends an event to all readers, and replays it to later ones. Works on any thread, inside a runtime or not, and
    /// never waits. Its cost grows with the number of threads that serve readers, not with the number of readers.
    ///
    /// # Errors
    ///
    /// See [`SendError`]; nothing is then sent.
    pub fn send(&self, event: Event) -> Result<EventId, SendError> {
        let Some(log) = &self.0.log else { return self.shared().send(event) };
        event.check()?;
        if self.shared().is_closed() || self.shared().is_sealed() {
            return Err(SendError::Closed);
        }
        if event.parts().id.is_some() {
            return Err(SendError::IdNotOurs);
        }
        log.append(event)?;
        self.shared().appended();
        Ok(EventId::by_log())
    }

    /// Does the same as [`send`](Self::send), but with [`LagPolicy::Block`] waits until the
    /// slowest reader has room, or for [`HubBuilder::patience`]. Concurrent senders continue in any order.
    ///
    /// # Errors
    ///
    /// Fails like `send`. [`SendError::Full`] is returned only by a log.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside of a tokio runtime with timers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready sends nothing.
    pub async fn send_wait(&self, event: Event) -> Result<EventId, SendError> {
        match self.0.log {
            Some(_) => self.send(event),
            None => self.shared().send_wait(event).await,
        }
    }

    /// Answers a request for the events. A `HEAD` request gets only the head.
    ///
    /// The stream continues after the id in the header `Last-Event-ID`, or else in `lastEventId` of the query, with `%`
    /// and `+` decoded; without one it starts with the next event. Invalid ids are ignored and counted.
    ///
    /// With `HubBuilder::gzip` the response is compressed if the client prefers that to the identity, and has
    /// `Vary: Accept-Encoding` in any case.
    ///
    /// The response is `503 Service Unavailable` with `Retry-After` if the maximum number of
    /// [subscribers](HubBuilder::subscribers) is reached, or the hub is closed.
    pub fn subscribe<B>(&self, request: &Request<B>) -> Response<EventBody> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let gzip = request::accepts_gzip(&self.shared().config, headers);
        request::answer(self.shared(), method, uri, headers, gzip, |last| {
            self.seat(last, Coding::gzip(self.shared().deflater.as_ref().filter(|_| gzip)))
        })
    }

    /// Returns a body that continues after the event with the id `last`, or starts with the next event; not compressed.
    /// For responses other than those of [`subscribe`](Self::subscribe): set the content type to `text/event-stream`.
    ///
    /// # Errors
    ///
    /// Fails if the maximum number of subscribers is reached, or the hub is closed.
    pub fn subscribe_from(&self, last: Option<&str>) -> Result<EventBody, SubscribeError> {
        self.seat(last, Coding::Plain).map(EventBody::new)
    }

    /// Returns the id of the newest event, for a reader that subscribes with it later and misses no event sent
    /// meanwhile. Before the first event it is an id that only this hub knows: with it, a reader gets the first event.
    ///
    /// ```
    /// use millstream::sse::{Event, Hub};
    ///
    /// let hub = Hub::new();
    /// let position = hub.position();
    /// let sent = hub.send(Event::new().data("sent before the reader came"))?;
    /// // Begins with this event.
    /// let reader = hub.subscribe_from(Some(&position))?;
    /// assert_eq!(sent.id(), Some(hub.position()));
    /// # drop(reader);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn position(&self) -> String {
        self.shared().newest().to_string()
    }

    /// Returns whether a [log](HubBuilder::log) assigns the ids of the events.
    pub fn has_log(&self) -> bool {
        self.0.log.is_some()
    }

    pub(super) fn seat(&self, last: Option<&str>, coding: Coding) -> Result<SeatState, SubscribeError> {
        let permit = self.shared().enter()?;
        let last = last.filter(|id| request::is_id(self.shared(), id));
        Ok(SeatState::new(permit, self.0.log.as_ref(), last, coding))
    }

    /// Ends all streams after the events sent before; later sends fail.
    ///
    /// With a [log](HubBuilder::log), streams end after the events that the log has delivered. Those that it has accepted
    /// and not yet delivered reach readers only when they return. `Disk::flush` waits until all are delivered,
    /// `Redis::flush` only until Redis has them.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> HubStats {
        self.shared().stats()
    }
}

impl Default for Hub {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        f.debug_struct("Hub")
            .field("config", &shared.config)
            .field("log", &self.0.log)
            .field("closed", &shared.is_closed())
            .field("stats", &self.stats())
            .finish()
    }
}
