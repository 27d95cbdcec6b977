//! The topics, and the responses that follow them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Buf;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use millstream::body::GracefulClose;

use crate::asked::{Asked, Media};
use crate::body::TopicsBody;
use crate::builder::TopicsBuilder;
use crate::error::NameError;
use crate::events;
use crate::readers::Readers;
use crate::refusal::Refusal;
use crate::registry::PlacedSource;
use crate::shared::TopicsShared;
use crate::source::Source;
use crate::stats::TopicsStats;

/// Disables response buffering in nginx and compatible proxies.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Event streams by name, of which one response follows several.
///
/// See the [crate](crate) for an example. Clones are handles to the same topics. When the last handle is dropped, all
/// topics are removed.
///
/// # Requests
///
/// | request | names of topics | last id |
/// |---|---|---|
/// | `GET /events?topic=a&topic=b` | each `topic` of the query | header `Last-Event-ID`, or else `lastEventId` of the query |
/// | `POST`, `application/x-www-form-urlencoded` | each `topic` of the body | the same header, or else `lastEventId` of the body |
/// | `POST`, `application/json` | `{"topics":["a","b"],"lastEventId":"…"}` | the same header, or else `lastEventId` |
///
/// A browser's `EventSource` sends `GET` only. Use `POST` from readers that are built on `fetch`, for more names than a
/// URL has room for, or to keep them out of logs. A name that is asked for twice counts once.
///
/// # Refusals
///
/// Before anything is sent, the whole request is refused with JSON, such as `{"error":"forbidden","topic":"b"}`:
///
/// | status | `error` |
/// |---|---|
/// | 400 | `no_topic`, `too_many_topics`, `name_too_long`, `id_too_long`, `malformed_body` |
/// | 403 | `forbidden`: the request may not read this topic, whether it exists or not |
/// | 404 | `unknown_topic`: see [`TopicsBuilder::wait_for_topics`] |
/// | 405, 413, 415 | `method`, `body_too_large`, `media_type` |
/// | 503 | `full`, with `Retry-After`: too many [readers](TopicsBuilder::readers), here or of a topic |
/// | 503 | `lost`, with `Retry-After`: the source of a topic is [lost](crate::Source::is_lost) |
///
/// It is `204 No Content` if all topics have ended and the reader has all of their events. An `EventSource` then does not
/// reconnect.
///
/// # Ids
///
/// The id of each event has the position of every topic of the reader, the topic of the event first:
///
/// ```text
/// event: token
/// data: hello
/// id: chat/42=5f3a9b01-12,news=0a1b2c3d-7
/// ```
///
/// Names and positions are percent-encoded. So `decodeURIComponent(event.lastEventId.split("=")[0])` is the topic of an
/// event in a browser. A reader that reconnects with the last id continues in each topic where it was, also in those
/// that were silent. The response begins with an event that has nothing but an id; browsers remember it and show
/// nothing. A topic that the id does not name begins as for a new reader. An id that is none of these is ignored and
/// [counted](TopicsStats::bad_ids). A position that a source does not know has the effect that it has there: a hub sends
/// a [gap](millstream::sse::Hub#gaps).
///
/// # Events of topics
///
/// The events of each topic arrive in their order. Topics take turns, so one with many events does not delay the
/// others. An event `gap` names its topic, and so does the event at the end of a topic:
///
/// ```text
/// event: gap
/// data: {"topic":"news","reason":"slow","missed":12}
///
/// event: topic-end
/// data: {"topic":"news","reason":"removed"}
/// ```
///
/// The reason is `ended` (the hub is closed, or the stream has ended), `removed` ([`remove`](Self::remove)), or
/// `id_too_long` ([`TopicsBuilder::id_len`]). The other topics continue. The response ends when all topics have ended,
/// and when a hub ends the reader, because it is slow or has reached its
/// [age](millstream::sse::HubBuilder::max_age): the reader reconnects and continues. It also ends when the server
/// drains. Its last bytes are the `retry:` of [`TopicsBuilder::retry`].
///
/// # Cost
///
/// An event costs the same beside any number of silent topics, except for the bytes of its id. The response is not
/// compressed, and the hubs do not write to its connection directly. For one topic, [`Hub::subscribe`] is cheaper.
///
/// [`Hub::subscribe`]: millstream::sse::Hub::subscribe
#[derive(Clone)]
pub struct Topics(Arc<TopicsShared>);

impl TopicsBuilder {
    /// Builds the topics, without any.
    pub fn build(self) -> Topics {
        let Self { allow, options, readers } = self;
        Topics(Arc::new(TopicsShared { allow, options, registry: Arc::default(), readers: Readers::new(readers) }))
    }
}

impl Topics {
    /// Returns a builder. `allow` is called for each topic of each request, before anything is sent, and returns whether
    /// the request may read the topic. It runs in the task of the request and must not block: let a layer put the user
    /// into the extensions of the request first. It is not called again while the response lasts: end responses at an
    /// [age](millstream::server::Limits::age) if a decision must not stand for longer.
    ///
    /// ```
    /// use millstream_topics::Topics;
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// let topics = Topics::builder(|request, topic| match request.extensions.get::<User>() {
    ///     Some(User(name)) => topic == "news" || topic == format!("user/{name}"),
    ///     None => false,
    /// })
    /// .build();
    /// # drop(topics);
    /// ```
    pub fn builder(allow: impl Fn(&Parts, &str) -> bool + Send + Sync + 'static) -> TopicsBuilder {
        TopicsBuilder::new(Box::new(allow))
    }

    /// Returns a builder of topics that any request may read.
    pub fn public() -> TopicsBuilder {
        Self::builder(|_, _| true)
    }

    /// Adds a topic, or replaces its source: readers get the events of the old source that were sent before, and then
    /// those of the new one. Works on any thread.
    ///
    /// Replacing a source by itself sends its events twice: all events of a stream with a key. Where
    /// each request adds the topic that it needs, use [`insert_new`](Self::insert_new). A topic whose source has ended
    /// stays, with the events of its source, until it is [removed](Self::remove).
    ///
    /// # Errors
    ///
    /// [`NameError`]: the name is empty or too long.
    pub fn insert(&self, name: &str, source: impl Source) -> Result<(), NameError> {
        self.check_name(name)?;
        self.0.registry.set(name, Some(PlacedSource::new(Box::new(source))));
        Ok(())
    }

    /// Adds a topic, unless there is one with this name whose source is not [lost](Source::is_lost). Returns whether it was
    /// added. Works on any thread.
    ///
    /// # Errors
    ///
    /// [`NameError`]: the name is empty or too long.
    pub fn insert_new(&self, name: &str, source: impl Source) -> Result<bool, NameError> {
        self.check_name(name)?;
        Ok(self.0.registry.add(name, PlacedSource::new(Box::new(source))))
    }

    fn check_name(&self, name: &str) -> Result<(), NameError> {
        let max = self.0.options.name_len;
        if name.is_empty() || name.len() > max { Err(NameError { max }) } else { Ok(()) }
    }

    /// Removes a topic. It ends for its readers, behind the events that were sent before. Returns whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        self.0.registry.set(name, None)
    }

    /// Answers a `GET` or `HEAD` request by its query; see [requests](Self#requests). A `HEAD` request gets only the
    /// head.
    pub fn subscribe(&self, request: &Parts) -> Response<TopicsBody> {
        let asked = Asked::of_pairs(&request.headers, request.uri.query().unwrap_or_default().as_bytes());
        self.respond(request, &asked)
    }

    /// Answers a `GET`, `HEAD` or `POST` request; see [requests](Self#requests). The body of a `POST` is read to its end,
    /// which takes as long as the limits of the server allow.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready subscribes to nothing.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<TopicsBody>
    where
        B: Body<Data: Buf, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        match head.method {
            Method::GET | Method::HEAD => self.subscribe(&head),
            Method::POST => match self.read(&head, body).await {
                Ok(asked) => self.respond(&head, &asked),
                Err(refusal) => refusal.response(),
            },
            _ => Refusal::Method.response(),
        }
    }

    async fn read<B>(&self, head: &Parts, body: B) -> Result<Asked, Refusal>
    where
        B: Body<Data: Buf, Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let media = Media::of(&head.headers).ok_or(Refusal::MediaType)?;
        let body = std::pin::pin!(Limited::new(body, self.0.options.body_len));
        let body = body.collect().await.map_err(|error| match error.is::<LengthLimitError>() {
            true => Refusal::BodyTooLarge,
            false => Refusal::MalformedBody,
        })?;
        Asked::of_body(&head.headers, media, &body.to_bytes())
    }

    fn respond(&self, request: &Parts, asked: &Asked) -> Response<TopicsBody> {
        match self.0.open(request, asked) {
            Ok((body, ending)) => head(body, ending),
            Err(refusal) => {
                if let Refusal::Full(_) = refusal {
                    events::refused(&self.0.readers);
                }
                refusal.response()
            }
        }
    }

    /// Returns the numbers of now.
    pub fn stats(&self) -> TopicsStats {
        let readers = &self.0.readers;
        TopicsStats {
            topics: self.0.registry.len(),
            readers: readers.now(),
            refused: readers.refused.load(Ordering::Relaxed),
            bad_ids: readers.bad_ids.load(Ordering::Relaxed),
        }
    }
}

/// Returns the response with the events of a reader.
fn head(body: TopicsBody, ending: Option<GracefulClose>) -> Response<TopicsBody> {
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that compresses would delay events.
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    fields.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    if let Some(ending) = ending {
        response.extensions_mut().insert(ending);
    }
    response
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (options, stats) = (&self.0.options, self.stats());
        f.debug_struct("Topics").field("options", options).field("stats", &stats).finish()
    }
}
