//! Reads: catch-up, and long polls.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Request, Response, StatusCode};
use millstream::server::RequestBody;

use crate::body::{self, Body};
use crate::fields::{self, Live, Query, Refusal, Start};
use crate::json;
use crate::service::{App, NO_STORE, content_type, deleted};
use crate::store::{Kind, Place, Store, Stream};

/// Bytes that one answer has from memory. Ranges of files have no limit, because they are read as they are sent.
const MEMORY_MAX: usize = 1 << 20;
/// Bytes that an event has from memory.
const READ_MAX: usize = 256 << 10;

const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=60, stale-while-revalidate=300");

impl App {
    pub(crate) async fn read(self: &Arc<Self>, request: &Request<RequestBody>) -> Result<Response<Body>, Refusal> {
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let stream = self.stream(request.uri().path()).await?;
        stream.touch();
        let mut view = stream.view();
        let start = match query.start {
            Start::Now => view.end,
            Start::At(at) if at > view.end => return Err(Refusal::bad("the offset is beyond the end of the stream")),
            Start::At(at) => at,
        };
        self.check_offset(&stream, start, view.end).await?;
        match query.live {
            Some(Live::Events) => return Ok(self.events(&stream, start, query.cursor)),
            Some(Live::LongPoll) => view = self.wait(&stream, start).await,
            None => {}
        }
        if view.gone {
            // Gone for good, or needed by forks.
            return Err(self.stream(request.uri().path()).await.err().unwrap_or_else(deleted));
        }
        let is_now = query.start == Start::Now && query.live.is_none();
        let last = if is_now { start } else { view.end };
        let (body, len, end) = self.pieces(&stream, start, last).await?;
        let is_last = end == view.end;
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, len.into());
        content_type(headers, &stream);
        headers.insert(fields::NEXT, fields::offset(end));
        headers.insert(CACHE_CONTROL, if end == start { NO_STORE } else { CACHED });
        if is_last {
            headers.insert(fields::UP_TO_DATE, fields::TRUE);
        }
        let closed = is_last && view.closed;
        if closed {
            headers.insert(fields::CLOSED, fields::TRUE);
        }
        if query.live.is_some() {
            headers.insert(fields::CURSOR, fields::cursor(query.cursor).into());
            if end == start {
                return Ok(without_body(response, StatusCode::NO_CONTENT));
            }
        }
        if !is_now {
            let end_of = if closed { ":c" } else { "" };
            let tag = format!("\"{:x}:{start}:{end}{end_of}\"", stream.meta.id);
            let known = request.headers().get_all(IF_NONE_MATCH).iter().any(|value| lists(value, &tag));
            headers.insert(ETAG, HeaderValue::from_str(&tag).expect("a tag is ASCII"));
            if known {
                return Ok(without_body(response, StatusCode::NOT_MODIFIED));
            }
        }
        Ok(response)
    }

    /// Returns a body with the bytes between two positions, or the first of them, its length, and the position after
    /// them.
    async fn pieces(&self, stream: &Stream, start: u64, end: u64) -> Result<(Body, u64, u64), Refusal> {
        let is_json = stream.kind == Kind::Json;
        if start == end {
            let body = if is_json { "[]" } else { "" };
            return Ok((body::bytes(body), body.len() as u64, start));
        }
        let (mut at, mut places, mut memory) = (start, VecDeque::new(), MEMORY_MAX);
        while at < end && memory > 0 {
            let place = stream.find(at, end, memory);
            match &place {
                Place::File(part) => at += part.range.end - part.range.start,
                Place::Memory(bytes) => {
                    at += bytes.len() as u64;
                    memory = memory.saturating_sub(bytes.len());
                    if bytes.is_empty() {
                        // The stream was removed meanwhile.
                        return Err(deleted());
                    }
                }
            }
            places.push_back(place);
        }
        let mut len = at - start;
        if is_json {
            // The comma behind the last message is not sent.
            match places.back_mut() {
                Some(Place::Memory(bytes)) => bytes.truncate(bytes.len() - json::END.len()),
                Some(Place::File(part)) => part.range.end -= json::END.len() as u64,
                None => {}
            }
            len += 2 - json::END.len() as u64;
            places.push_back(Place::Memory(Bytes::from_static(b"]")));
        }
        // An answer whose first block is damaged is an error. It ends early if another one is.
        load(&self.store, &mut places).await.map_err(Refusal::internal)?;
        if is_json {
            places.push_front(Place::Memory(Bytes::from_static(b"[")));
        }
        let bytes = stream::unfold((Arc::clone(&self.store), places), async |(store, mut places)| {
            if let Err(error) = load(&store, &mut places).await {
                eprintln!("error: {error}");
                return Some((Err(error), (store, VecDeque::new())));
            }
            match places.pop_front()? {
                Place::Memory(bytes) => Some((Ok(bytes), (store, places))),
                Place::File(_) => None,
            }
        });
        Ok((body::stream(bytes), len, at))
    }

    /// Fails if a position is inside a message of a JSON stream.
    pub(crate) async fn check_offset(&self, stream: &Stream, at: u64, end: u64) -> Result<(), Refusal> {
        if stream.kind != Kind::Json
            || at == 0
            || at >= end
            || self.store.bytes(stream, at - 1, at).await?.ends_with(b"\n")
        {
            return Ok(());
        }
        Err(Refusal::bad("the offset is inside a message"))
    }
}

impl Store {
    /// Returns the bytes between two positions, or the first of them, without dividing a message.
    pub(crate) async fn bytes(&self, stream: &Stream, at: u64, end: u64) -> Result<Bytes, Refusal> {
        let mut part = match stream.find(at, end, READ_MAX) {
            Place::Memory(bytes) if bytes.is_empty() => return Err(deleted()),
            Place::Memory(bytes) => return Ok(bytes),
            Place::File(part) => part,
        };
        let mut bytes = BytesMut::new();
        while !part.range.is_empty() {
            for read in self.read(&mut part).await.map_err(Refusal::internal)? {
                bytes.extend_from_slice(&read);
            }
            let last = bytes.len().saturating_sub(READ_MAX);
            // The first block may have less than a character.
            if bytes.len() > 4
                && !part.range.is_empty()
                && let Some(cut) = json::cut(stream.kind, &bytes[last..], bytes.len() - last - 1)
            {
                bytes.truncate(last + cut);
                break;
            }
        }
        Ok(bytes.freeze())
    }
}

/// Reads the next block if the first place is in a file.
async fn load(store: &Store, places: &mut VecDeque<Place>) -> io::Result<()> {
    while let Some(Place::File(part)) = places.front_mut() {
        let read = store.read(part).await?;
        if part.range.is_empty() {
            places.pop_front();
        }
        read.into_iter().rev().for_each(|bytes| places.push_front(Place::Memory(bytes)));
    }
    Ok(())
}

fn without_body(mut response: Response<Body>, status: StatusCode) -> Response<Body> {
    *response.status_mut() = status;
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|_| body::empty())
}

/// Returns whether a list of tags has this one, which is compared weakly.
fn lists(value: &HeaderValue, tag: &str) -> bool {
    let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|listed| listed.strip_prefix("W/").unwrap_or(listed)).any(|listed| listed == tag || listed == "*")
}
