//! Request for events, and the head of its response.

use std::str;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;

use crate::body::ContentCoding;
use crate::body::event_body::{EventBody, EventStream};
use crate::spread::Draws;
use crate::sse::body::{SeatState, SharedEvents};
use crate::sse::error::SubscribeError;
use crate::sse::event::check_id;
use crate::sse::ring::{Config, HubShared};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Disables response buffering in nginx and compatible proxies.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Answers a request for the events of the hub `shared`, compressed or not. `subscribe` returns the reader behind an id.
pub(super) fn answer(
    shared: &HubShared,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    gzip: bool,
    subscribe: impl FnOnce(Option<&str>) -> Result<SeatState, SubscribeError>,
) -> Response<EventBody> {
    let seat = match method {
        &Method::HEAD => SeatState::Ended,
        _ => {
            let last = last_id(headers, uri.query());
            if last == Last::Bad {
                shared.bad_id();
            }
            let last = if let Last::Id(id) = &last { Some(&**id) } else { None };
            match subscribe(last) {
                Ok(seat) => seat,
                Err(_) => return refusal(&shared.config.retry),
            }
        }
    };
    head(&shared.config, seat, gzip)
}

/// Returns whether the response to a request with these fields is compressed.
pub(super) fn accepts_gzip(config: &Config, headers: &HeaderMap) -> bool {
    config.gzip.is_some() && ContentCoding::negotiate(headers, [ContentCoding::Gzip]).is_some()
}

/// Returns the response with the events of a reader.
pub(super) fn head(config: &Config, seat: SeatState, gzip: bool) -> Response<EventBody> {
    let ending = seat.ending();
    let (body, layered) = if config.past_layers {
        let events = SharedEvents::new(seat);
        let layered = events.layered();
        (EventBody::new(events), Some(layered))
    } else {
        (EventBody::new(seat), None)
    };
    let mut answer = Response::new(body);
    let fields = answer.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A proxy that compresses would delay events.
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    fields.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    if config.gzip.is_some() {
        fields.insert(header::VARY, HeaderValue::from_name(header::ACCEPT_ENCODING));
    }
    if gzip {
        fields.insert(header::CONTENT_ENCODING, ContentCoding::Gzip.value());
    }
    if let Some(ending) = ending {
        answer.extensions_mut().insert(ending);
    }
    if let Some(layered) = layered {
        answer.extensions_mut().insert(layered);
    }
    answer
}

pub(super) fn refusal(retry: &Draws) -> Response<EventBody> {
    let mut answer = empty(StatusCode::SERVICE_UNAVAILABLE);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry.draw_seconds()));
    answer
}

/// Returns a response without events.
pub(super) fn empty(status: StatusCode) -> Response<EventBody> {
    let mut answer = Response::new(EventBody::new(SeatState::Ended));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Returns whether an id is valid, and counts it otherwise. An empty id means that the reader has received none.
pub(super) fn is_id(shared: &HubShared, id: &str) -> bool {
    let is_id = check_id(id).is_ok();
    if !is_id && !id.is_empty() {
        shared.bad_id();
    }
    is_id
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Last {
    None,
    /// Not UTF-8. Other invalid ids are detected by `is_id`.
    Bad,
    Id(String),
}

pub(super) fn last_id(headers: &HeaderMap, query: Option<&str>) -> Last {
    let bytes = match headers.get(LAST_EVENT_ID) {
        Some(value) => value.as_bytes().to_vec(),
        None => {
            let mut pairs = query.unwrap_or_default().split('&');
            let Some(value) = pairs.find_map(|pair| pair.strip_prefix("lastEventId=")) else { return Last::None };
            percent_decode_str(&value.replace('+', " ")).collect()
        }
    };
    match str::from_utf8(&bytes) {
        Ok("") => Last::None,
        Ok(id) => Last::Id(id.to_owned()),
        Err(_) => Last::Bad,
    }
}

#[cfg(test)]
mod tests;
