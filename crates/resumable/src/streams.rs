//! The streams by key.

use std::fmt;
use std::sync::Arc;

use http::{Request, Response};
use millstream::sse::EventBody;
use tokio::runtime::Handle;

use crate::builder::StreamsBuilder;
use crate::error::StreamError;
use crate::handle::StreamHandle;
use crate::kept_stream::KeptStream;
use crate::owner::Owner;
use crate::reaper;
use crate::sender::{Producing, Running, StreamSender};
use crate::table::{StreamsShared, StreamsStats};

/// Streams of events with a key, which outlive their readers: a generated answer that survives a page reload and is
/// stopped without readers.
///
/// Clones are handles to the same streams. A stream has one producer, which runs as a task from
/// [`get_or_start`](Self::get_or_start) to its end, and any number of readers. Each reader gets all events from the
/// first on, or from where it left off, and the new ones. When the last handle is dropped, all streams are stopped.
///
/// ```no_run
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use hyper::{Method, Request};
/// use millstream::net::TcpListener;
/// use millstream::server;
/// use millstream::sse::{Event, SendError};
/// use millstream_resumable::{StreamError, StreamSender, Streams};
///
/// /// Sends the tokens of an answer.
/// async fn generate(sender: StreamSender) -> Result<(), SendError> {
///     for n in 0..1000 {
///         tokio::time::sleep(Duration::from_millis(20)).await;
///         sender.send(Event::new().data(format!("token {n}")))?;
///     }
///     Ok(())
/// }
///
/// #[tokio::main]
/// async fn main() -> std::io::Result<()> {
///     let streams = Streams::builder().ttl(Duration::from_secs(600)).abandoned(Duration::from_secs(30)).build();
///
///     // POST /answers/1 starts an answer, GET reads it, DELETE stops it.
///     let service = tower::service_fn(move |request: Request<server::RequestBody>| {
///         // The user that the service has authenticated.
///         let (key, user) = (request.uri().path(), "alice");
///         let answer = match *request.method() {
///             Method::POST => match streams.get_or_start(key, user, generate) {
///                 Ok(stream) => stream.attach(&request),
///                 Err(error) => error.response(),
///             },
///             // 204 No Content.
///             Method::DELETE => streams.stop(key, user).err().unwrap_or(StreamError::Ended).response(),
///             _ => streams.attach(&request, key, user),
///         };
///         async { Ok::<_, Infallible>(answer) }
///     });
///     server::serve(TcpListener::bind("127.0.0.1:8080").await?, service).await
/// }
/// ```
///
/// In a handler of axum, wrap the body: `streams.attach(&request, &key, user).map(axum::body::Body::new)`, and build
/// with [`past_layers`](StreamsBuilder::past_layers) so that the events are written [as by a
/// hub](millstream::sse::Hub#cost-of-a-reader).
///
/// # Owners
///
/// A key belongs to its [`Owner`]: the same key of two owners names two streams. So a client that knows or guesses a
/// key finds nothing without the owner, and cannot tell whether the key exists. [`Owner::anyone`] is an owner like the
/// others, for streams that need none.
///
/// # End of a stream
///
/// A response ends after the last event of the stream; [`StreamEnd`](crate::StreamEnd) tells how, and which event
/// says so. An `EventSource` reconnects after any end of a response. With the id of the last event it then gets `204 No
/// Content`, upon which it [gives up](https://html.spec.whatwg.org/multipage/server-sent-events.html#the-eventsource-interface),
/// and after the [time to live](StreamsBuilder::ttl) `404 Not Found`, with the same effect. A response that ends
/// because its server [drains](millstream::server::Server::drain) ends earlier: the reader then continues where it was.
///
/// # Memory
///
/// A stream keeps all of its events, encoded, in one place for all readers. While it is read, its hub also has the last
/// 64 of them. A stream of a few short events that is not read costs less than 1 KiB, without the future of its
/// producer. One task with one timer watches over all streams.
///
/// All streams are in the memory of this process. They end with it, and other processes cannot read them: route the
/// requests for a key to one process, or use [`SharedStreams`](crate::SharedStreams).
#[derive(Clone)]
pub struct Streams(Arc<StreamsShared>);

impl StreamsBuilder {
    /// Builds the streams. Nothing runs before the first one starts.
    pub fn build(self) -> Streams {
        Streams(StreamsShared::new(self))
    }
}

impl Streams {
    /// Creates streams with the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder with default options.
    pub fn builder() -> StreamsBuilder {
        StreamsBuilder::new()
    }

    /// Returns the stream of this owner with this key. If there is none, starts it: calls `producer`, and runs its
    /// future as a task. Of concurrent calls for a key one starts the producer. A stream that has ended is returned as
    /// it is until its [time to live](StreamsBuilder::ttl) is over, so a new attempt needs a new key.
    ///
    /// The stream ends when the future is ready. With an error it ends as
    /// [`StreamEnd::Failed`](crate::StreamEnd::Failed); the text of the error goes to the operator (feature `tracing`)
    /// and not to readers. The future is dropped when the stream is cancelled: by [`stop`](Self::stop), without
    /// readers, or by its age.
    ///
    /// # Errors
    ///
    /// [`StreamError::Full`], [`StreamError::NoOwner`], [`StreamError::LongKey`] and [`StreamError::NoRuntime`]. The
    /// producer is then not called.
    pub fn get_or_start<F, E>(
        &self,
        key: &str,
        owner: impl Into<Owner>,
        producer: impl FnOnce(StreamSender) -> F,
    ) -> Result<StreamHandle, StreamError>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let name = owner.into().name(key)?;
        let runtime = Handle::try_current();
        if let Ok(runtime) = &runtime {
            reaper::watch_again(&self.0, runtime);
        }
        let (stream, runtime) = {
            let mut table = self.0.table();
            if let Some(stream) = table.find(&name) {
                return Ok(StreamHandle(stream));
            }
            if table.len() >= self.0.setup.options.streams {
                return Err(StreamError::Full);
            }
            let runtime = runtime.map_err(|_| StreamError::NoRuntime)?;
            let stream = Arc::new(KeptStream::new(&self.0.setup, name, None));
            table.add(&stream);
            (stream, runtime)
        };
        reaper::watch(&self.0, &runtime);
        // Ends the stream if `producer` panics.
        let running = Running::new(&stream);
        let producer = producer(StreamSender(Arc::clone(&stream)));
        stream.set_producer(runtime.spawn(Producing::new(producer, running)).abort_handle());
        Ok(StreamHandle(stream))
    }

    /// Returns the stream of this owner with this key.
    ///
    /// # Errors
    ///
    /// [`StreamError::NotFound`] if there is none, in the same way if another owner has one. [`StreamError::NoOwner`]
    /// and [`StreamError::LongKey`].
    pub fn get(&self, key: &str, owner: impl Into<Owner>) -> Result<StreamHandle, StreamError> {
        let name = owner.into().name(key)?;
        self.0.table().find(&name).map(StreamHandle).ok_or(StreamError::NotFound)
    }

    /// Answers a request for the events of a stream, see [`StreamHandle::attach`]. The response is `404 Not Found` if
    /// this owner has no stream with this key, which makes an `EventSource` give up.
    pub fn attach<B>(&self, request: &Request<B>, key: &str, owner: impl Into<Owner>) -> Response<EventBody> {
        match self.get(key, owner) {
            Ok(stream) => stream.attach(request),
            Err(error) => error.response(),
        }
    }

    /// Ends the stream of this owner with this key, see [`StreamHandle::stop`].
    ///
    /// # Errors
    ///
    /// Fails like [`get`](Self::get). A stream that has ended stays as it is.
    pub fn stop(&self, key: &str, owner: impl Into<Owner>) -> Result<(), StreamError> {
        self.get(key, owner).map(|stream| stream.stop())
    }

    /// Returns the numbers of now.
    pub fn stats(&self) -> StreamsStats {
        self.0.stats()
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (options, stats) = (&self.0.setup.options, self.stats());
        f.debug_struct("Streams").field("options", options).field("stats", &stats).finish()
    }
}
