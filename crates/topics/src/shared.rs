//! The topics of a request: who may read them, where a reader begins, and the body that follows them.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use millstream::body::GracefulClose;

use crate::asked::{Asked, LastId};
use crate::body::TopicsBody;
use crate::builder::{Allow, Options};
use crate::composite::{self, CompositeId};
use crate::events;
use crate::merged::Merged;
use crate::readers::Readers;
use crate::refusal::Refusal;
use crate::registry::{PlacedSource, Registry};
use crate::seat::Seat;
use crate::source::SourceError;
use crate::wakes::Wakes;

/// The state that all handles share.
pub(crate) struct TopicsShared {
    pub(crate) allow: Allow,
    pub(crate) options: Options,
    pub(crate) registry: Arc<Registry>,
    pub(crate) readers: Arc<Readers>,
}

impl Drop for TopicsShared {
    fn drop(&mut self) {
        self.registry.close();
    }
}

/// A topic of a request.
struct Place<'a> {
    name: &'a str,
    source: Option<Arc<PlacedSource>>,
    /// Position of the reader; `None`: before the first event.
    position: Option<String>,
}

impl TopicsShared {
    /// Returns the body of a reader, and the handle that ends it. A request for the head is refused as a reader is, but needs
    /// no place.
    pub(crate) fn open(&self, request: &Parts, asked: &Asked) -> Result<(TopicsBody, Option<GracefulClose>), Refusal> {
        let places = self.places(request, asked)?;
        let id =
            CompositeId::new(places.iter().map(|place| (place.name, place.position.as_deref())), self.options.id_len);
        let id = id.map_err(|_| Refusal::IdTooLong)?;
        let later = || self.options.retry.draw_seconds();
        let permit = match request.method == Method::HEAD {
            true => None,
            false => Some(self.readers.enter().ok_or_else(|| Refusal::Full(later()))?),
        };
        let (wakes, mut seats) = (Wakes::new(places.len()), Vec::with_capacity(places.len()));
        let mut has_more = false;
        for (at, Place { name, source, position }) in places.into_iter().enumerate() {
            let topic = self.registry.join(name, wakes.waker(at));
            let reading = match source {
                Some(source) => match source.source().subscribe(position.as_deref()) {
                    Ok(body) => Ok(Some((body, source))),
                    Err(SourceError::Full) => return Err(Refusal::Full(later())),
                    Err(SourceError::Lost) => return Err(Refusal::Lost(later())),
                    Err(SourceError::Ended) => Err(source),
                },
                None => Ok(None),
            };
            has_more |= self.options.waits || matches!(reading, Ok(Some(_)));
            seats.push(Seat::new(topic, wakes.waker(at), reading, self.options.waits));
        }
        if !has_more {
            return Err(Refusal::Ended);
        }
        let Some(permit) = permit else { return Ok((TopicsBody::text(""), None)) };
        let end = Arc::clone(&wakes);
        let ending = GracefulClose::new(move || end.end());
        let merged = Merged::new(seats, wakes, id, self.options.retry.draw(), permit);
        Ok((TopicsBody::events(merged, self.options.keep_alive), Some(ending)))
    }

    /// Returns the topics of a request, or why it is refused.
    fn places<'a>(&self, request: &Parts, asked: &'a Asked) -> Result<Vec<Place<'a>>, Refusal> {
        let Options { topics, name_len, waits, .. } = self.options;
        match asked.names.len() {
            0 => return Err(Refusal::NoTopic),
            len if len > topics => return Err(Refusal::TooManyTopics),
            _ => {}
        }
        if asked.names.iter().any(String::is_empty) {
            return Err(Refusal::NoTopic);
        }
        if asked.names.iter().any(|name| name.len() > name_len) {
            return Err(Refusal::NameTooLong);
        }
        // First, so that a client does not learn of topics that it may not read.
        if let Some(name) = asked.names.iter().find(|name| !(self.allow)(request, name)) {
            return Err(Refusal::Forbidden(name.clone()));
        }
        let mut positions = self.positions(&asked.last);
        let place = |name: &'a String| {
            let source = self.registry.find(name);
            let position = match (&source, positions.remove(name)) {
                (_, Some(Some(position))) => Some(position),
                // The reader has waited for the topic.
                (Some(source), Some(None)) => source.first().map(str::to_owned),
                (Some(source), None) => source.source().position(),
                (None, Some(None)) => None,
                (None, None) if waits => None,
                (None, None) => return Err(Refusal::Unknown(name.clone())),
            };
            Ok(Place { name, source, position })
        };
        asked.names.iter().map(place).collect()
    }

    /// Returns the positions that a reader has sent.
    fn positions(&self, last: &LastId) -> HashMap<String, Option<String>> {
        let positions = match last {
            LastId::None => Some(Vec::new()),
            LastId::Bad => None,
            LastId::Id(id) => composite::decode_all(id, self.options.id_len),
        };
        let positions = positions.unwrap_or_else(|| {
            events::bad_id(&self.readers);
            Vec::new()
        });
        positions.into_iter().collect()
    }
}
