//! A hub over events that its user keeps, for the crate of resumable streams.

use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};

use super::builder::HubBuilder;
use super::request::{self, Last};
use crate::body::event_body::EventBody;
use crate::counters::{Counter, count};
use crate::spread::{Draws, Spread};
use crate::sse::body::{Coding, SeatState};
use crate::sse::error::{SendError, SubscribeError};
use crate::sse::event::{Event, EventId, Gap, finish};
use crate::sse::ring::{HubShared, Keeper};

/// Length of the longest id: prefix, hyphen and number.
const ID_LEN: usize = 8 + 1 + 20;

/// A hub whose events are numbered from 0 on and kept by a [`Keeper`]. Its ring has the last of them. Clones are handles
/// to the same hub.
#[derive(Clone)]
pub struct KeptHub(Arc<HubShared>);

impl KeptHub {
    /// Creates a hub whose next event has the number `next`.
    pub fn new(options: &HubBuilder, next: u64, keeper: Arc<dyn Keeper>) -> Self {
        Self(Arc::new(HubShared::kept(options.config.clone(), next, keeper)))
    }

    /// Adds the next event. Readers are not woken.
    pub fn push(&self, event: Bytes) {
        self.0.push_kept(event);
    }

    /// Ends the streams of readers behind the last event. Readers are not woken.
    pub fn finish(&self) {
        self.0.finish();
    }

    /// Wakes all readers.
    pub fn wake(&self) {
        self.0.groups.wake();
    }

    /// Returns whether there are readers.
    pub fn is_read(&self) -> bool {
        self.0.is_read()
    }

    /// Adds a reader at the event with the number `next`. It first gets an event `gap` if it `has_expired`.
    ///
    /// # Errors
    ///
    /// There are as many subscribers as the options allow.
    pub fn enter(&self, next: u64, has_expired: bool, gzip: bool) -> Result<KeptReader, SubscribeError> {
        let permit = self.0.enter()?;
        let deflater = self.0.deflater.as_ref().filter(|_| gzip);
        let start = self.0.begin_at(next, has_expired.then(|| Gap::expired(None)));
        Ok(KeptReader(SeatState::at(permit, start, Coding::gzip(deflater))))
    }
}

impl fmt::Debug for KeptHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.0.stats().ring_events;
        f.debug_struct("KeptHub").field("ring_events", &events).field("is_read", &self.is_read()).finish()
    }
}

/// A reader of a [`KeptHub`].
#[derive(Debug)]
pub struct KeptReader(SeatState);

impl KeptReader {
    /// A reader that gets nothing, for responses to `HEAD`.
    pub fn ended() -> Self {
        Self(SeatState::Ended)
    }

    /// Returns the body, for a response without [`Asked::answer`].
    pub fn into_body(self) -> EventBody {
        EventBody::new(self.0)
    }
}

/// The contents of a request for events.
#[derive(Debug)]
#[non_exhaustive]
pub struct Asked {
    /// Id of the last event that the reader has. An invalid id is the empty one.
    pub last: Option<String>,
    /// Whether the events are compressed.
    pub gzip: bool,
    /// Whether it asks for the head of the response only.
    pub is_head: bool,
}

impl Asked {
    /// Reads a request for events of hubs with these options.
    pub fn new<B>(options: &HubBuilder, request: &Request<B>) -> Self {
        let last = match request::last_id(request.headers(), request.uri().query()) {
            Last::None => None,
            Last::Id(id) => Some(id),
            Last::Bad => {
                count(Counter::EventIdsRefused, 1);
                Some(String::new())
            }
        };
        let gzip = request::accepts_gzip(&options.config, request.headers());
        Self { last, gzip, is_head: request.method() == Method::HEAD }
    }

    /// Returns the response with the events of a reader.
    pub fn answer(&self, options: &HubBuilder, reader: KeptReader) -> Response<EventBody> {
        request::head(&options.config, reader.0, self.gzip)
    }
}

/// Returns a response without events. `503 Service Unavailable` has `Retry-After`.
pub fn refusal(status: StatusCode) -> Response<EventBody> {
    static RETRY_AFTER: LazyLock<Draws> = LazyLock::new(|| Draws::new(Spread::RETURN));
    match status {
        StatusCode::SERVICE_UNAVAILABLE => request::refusal(&RETRY_AFTER),
        status => request::empty(status),
    }
}

/// Encodes everything but the id and the final line.
///
/// # Errors
///
/// The event is invalid, or has an id.
pub fn encode(event: &Event) -> Result<Vec<u8>, SendError> {
    event.check()?;
    match event.parts().id {
        Some(_) => Err(SendError::IdNotOurs),
        None => Ok(event.encode(ID_LEN)),
    }
}

/// Completes an encoded event with its id.
pub fn with_id(mut text: Vec<u8>, id: &EventId) -> Vec<u8> {
    finish(&mut text, id);
    text
}

/// Returns the id of the event `number` of a stream with this prefix.
pub fn id_of(epoch: u32, number: u64) -> EventId {
    EventId::numbered(epoch, number)
}

/// Returns the number of the event behind the id `id`, if it is one of this `epoch`.
pub fn next_of(epoch: u32, id: &str) -> Option<u64> {
    EventId::next_of(epoch, id)
}
