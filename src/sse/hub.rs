//! The hub itself: what sends, lets in, and closes.

use std::fmt;
use std::sync::Arc;

use http::{Request, Response};

use super::body::EventBody;
use super::builder::HubBuilder;
use super::error::{SendError, SubscribeError};
use super::event::Event;
use super::event_id::EventId;
use super::request;
use super::shared::{Config, Shared};
use super::stats::Stats;
use crate::sse::log::{Log, Sink};

/// One event, many readers: [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html), with
/// ids, replay after a lost connection, keep-alive, and a policy for readers that are slow.
///
/// Clones are handles to the same hub. [`send`](Self::send) encodes an event once, into a ring that all readers share;
/// a reader is a place in that ring, without a queue, a task or a timer of its own.
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
///     let hub = Hub::builder().replay(10_000).slow(LagPolicy::Disconnect).subscribers(50_000).build();
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
/// # Coming back
///
/// Each event has an id: its own, or one made of a number and what tells this hub from every other. A reader that was
/// cut off sends the last one it had, as browsers do, and goes on with the event behind it: nothing is lost and
/// nothing comes twice for as long as the [ring](HubBuilder::replay) or the [log](HubBuilder::log) has those events.
///
/// # Gaps
///
/// What a reader cannot get any more it is told, by an event named `gap` without an id, before the events that follow:
///
/// ```text
/// event: gap
/// data: {"reason":"slow","missed":12}
/// ```
///
/// `missed` is how many, or `null` if nobody knows. The reason is
///
/// | | |
/// |---|---|
/// | `slow` | the reader was too slow, see [`LagPolicy`](super::LagPolicy) |
/// | `expired` | it came back when the event behind its id was gone, or its id is not known; what there is follows |
/// | `lost` | the log has lost some |
/// | `unreachable` | the log cannot be asked for what was before; what this hub has follows |
///
/// # LagPolicy readers
///
/// hyper asks a body for more when the connection has room. So a reader that does not read at all keeps what its
/// socket and hyper hold, and its place; its policy takes effect when it reads again, and the server's limits end
/// its connection if it never does.
///
/// # GracefulClose
///
/// A stream ends with its reader's connection, by [`close`](Self::close), or when the last handle is dropped; each
/// response has an [`GracefulClose`](crate::body::GracefulClose) for the server to end it by. Its last words are the `retry:` of
/// [`HubBuilder::retry`].
#[derive(Clone)]
pub struct Hub(Arc<Alive>);

/// Dropped with the last handle.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Hub {
    /// A hub with what [`builder`](Self::builder) begins with.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings other than the defaults.
    pub fn builder() -> HubBuilder {
        HubBuilder::new()
    }

    #[track_caller]
    pub(super) fn start(config: Config, log: Option<Arc<dyn Log>>) -> Self {
        let shared = Arc::new(Shared::new(config, log));
        if let Some(log) = &shared.log {
            let sink = Sink::new(&shared, shared.closing());
            // It ends when the hub is closed.
            drop(tokio::spawn(Arc::clone(log).run(sink)));
        }
        Self(Arc::new(Alive(shared)))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Sends an event to all readers; to those that come later it is replayed. From any thread, inside a runtime or not;
    /// it never waits. What it costs grows with the runtimes that readers are in, not with the readers.
    ///
    /// # Errors
    ///
    /// See [`SendError`]; nothing was sent then.
    pub fn send(&self, event: Event) -> Result<EventId, SendError> {
        self.shared().send(event)
    }

    /// As [`send`](Self::send), but with [`LagPolicy::Block`](super::LagPolicy::Block) it waits until the slowest reader has room, or
    /// was waited for for [`HubBuilder::patience`]. Senders that wait at the same time go on in any order.
    ///
    /// # Errors
    ///
    /// As for `send`. [`SendError::Full`] comes only from a log.
    ///
    /// # Panics
    ///
    /// If it has to wait outside a tokio runtime with timers.
    ///
    /// # Cancellation
    ///
    /// Dropping the future before it is ready sends nothing.
    pub async fn send_wait(&self, event: Event) -> Result<EventId, SendError> {
        self.shared().send_wait(event).await
    }

    /// Answers a request for the events. A `HEAD` request gets the head alone.
    ///
    /// The id to go on behind is that of the field `Last-Event-ID` or else `lastEventId` of the query, with `%` and `+`
    /// decoded; without one the reader begins with the next event. Ids that cannot be are ignored, and counted.
    ///
    /// The answer is `503 Service Unavailable` with `Retry-After` where there are as many
    /// [subscribers](HubBuilder::subscribers) as there may be, or the hub is closed.
    pub fn subscribe<B>(&self, request: &Request<B>) -> Response<EventBody> {
        request::answer(self, request.method(), request.uri(), request.headers())
    }

    /// A body that goes on behind the event with the id `last`, or begins with the next event. For answers of another kind than
    /// those of [`subscribe`](Self::subscribe): set the content type to `text/event-stream`.
    ///
    /// # Errors
    ///
    /// There are as many subscribers as there may be, or the hub is closed.
    pub fn subscribe_from(&self, last: Option<&str>) -> Result<EventBody, SubscribeError> {
        let permit = self.shared().enter()?;
        let last = last.filter(|id| request::is_id(self.shared(), id));
        Ok(EventBody::new(permit, last))
    }

    /// How long the reader should wait that is not let in, in seconds.
    pub(super) fn retry_after(&self) -> u64 {
        self.shared().config.retry.as_secs_f64().ceil().max(1.0) as u64
    }

    pub(super) fn bad_id(&self) {
        self.shared().bad_id();
    }

    /// Ends all streams, after the events sent before; nothing can be sent any more.
    pub fn close(&self) {
        self.shared().close();
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
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
            .field("log", &shared.log)
            .field("closed", &shared.is_closed())
            .field("stats", &self.stats())
            .finish()
    }
}
