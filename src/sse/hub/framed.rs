//! The events of a hub in another framing.

use std::sync::Arc;

use http::{Request, Response, header};

use super::hub::Hub;
use super::request;
use crate::body::event_body::EventBody;
use crate::sse::body::Coding;
use crate::sse::error::SubscribeError;
use crate::sse::event::{Framed, Framing};

/// The events of a [`Hub`] in another [`Framing`], from [`Hub::framed`]. Clones share the last framed events, so that
/// readers at the same position need them framed once.
///
/// Its readers are readers of the hub, in every other respect: ids and replay, slow readers and their gaps, limits, ages
/// and statistics are the same, and the same pass writes to them. Events are not compressed.
#[derive(Clone, Debug)]
pub struct FramedHub {
    hub: Hub,
    framed: Arc<Framed>,
}

impl Hub {
    /// Returns the same events in another [`Framing`], such as JSON lines. Keep it and clone it: its readers share the
    /// framed events.
    ///
    /// ```
    /// use http::Request;
    /// use millstream::sse::{Event, Hub, JsonLines};
    ///
    /// let hub = Hub::new();
    /// let lines = hub.framed(JsonLines::new());
    /// let response = lines.subscribe(&Request::new(()));
    /// assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    /// // Readers of both get it.
    /// hub.send(Event::new().data(r#"{"price":12}"#))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn framed(&self, framing: impl Framing) -> FramedHub {
        FramedHub { hub: self.clone(), framed: Arc::new(Framed::new(framing)) }
    }
}

impl FramedHub {
    /// As [`Hub::subscribe`], in this framing and with its content type.
    pub fn subscribe<B>(&self, request: &Request<B>) -> Response<EventBody> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let mut answer = request::answer(self.hub.shared(), method, uri, headers, false, |last| {
            self.hub.seat(last, Coding::Framed(Arc::clone(&self.framed)))
        });
        answer.headers_mut().remove(header::VARY);
        if let Some(content_type) = answer.headers_mut().get_mut(header::CONTENT_TYPE) {
            *content_type = self.framed.framing().content_type();
        }
        answer
    }

    /// As [`Hub::subscribe_from`], in this framing.
    ///
    /// # Errors
    ///
    /// Fails if the maximum number of subscribers is reached, or the hub is closed.
    pub fn subscribe_from(&self, last: Option<&str>) -> Result<EventBody, SubscribeError> {
        self.hub.seat(last, Coding::Framed(Arc::clone(&self.framed))).map(EventBody::new)
    }
}
