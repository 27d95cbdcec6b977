//! Reads: catch-up, and long polls.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Request, Response, StatusCode};
use millstream::server::RequestBody;

use crate::body::{self, Body};
use crate::fields::{self, Live, Query, Start};
use crate::json;
use crate::refusal::Refusal;
use crate::service::{App, NO_STORE, content_type};
use crate::store::{Kind, Store, Stream};

/// Bytes of an event.
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
            return Err(self.stream(request.uri().path()).await.err().unwrap_or_else(Refusal::deleted));
        }
        let is_now = query.start == Start::Now && query.live.is_none();
        let end = view.end;
        let tag = format!("\"{:x}:{start}:{end}{}\"", stream.meta.id, if view.closed { ":c" } else { "" });
        let mut known = request.headers().get_all(IF_NONE_MATCH).iter();
        let mut response = if query.live.is_some() && end == start {
            body::status(StatusCode::NO_CONTENT)
        } else if !is_now && known.any(|value| lists(value, &tag)) {
            body::status(StatusCode::NOT_MODIFIED)
        } else {
            self.contents(&stream, start, end).await?
        };
        let has_tag = !is_now && response.status() != StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        content_type(headers, &stream);
        fields::position(headers, end, view.closed);
        headers.insert(CACHE_CONTROL, if end == start { NO_STORE } else { CACHED });
        headers.insert(fields::UP_TO_DATE, fields::TRUE);
        if query.live.is_some() {
            headers.insert(fields::CURSOR, fields::cursor(query.cursor).into());
        }
        if has_tag {
            headers.insert(ETAG, HeaderValue::from_str(&tag).expect("a tag is ASCII"));
        }
        Ok(response)
    }

    /// Returns an answer with the bytes between two positions. Damage in the first block is an error, and any later one
    /// ends the body early.
    async fn contents(&self, stream: &Arc<Stream>, start: u64, end: u64) -> Result<Response<Body>, Refusal> {
        let (mut pieces, mut at, mut until, mut last) = (Vec::new(), start, end, None);
        if stream.kind == Kind::Json {
            pieces.push(Bytes::from_static(b"["));
            last = Some(Bytes::from_static(b"]"));
            // The comma behind the last message is not sent.
            until = end.saturating_sub(json::END.len() as u64).max(start);
        }
        let len = pieces.len() as u64 * 2 + until - start;
        if at < until {
            let read = self.store.read(stream, at, until).await?;
            at += len_of(&read);
            pieces.extend(read);
        }
        let from = (Arc::clone(&self.store), Arc::clone(stream), at..until);
        let rest = stream::try_unfold(from, async |(store, stream, mut left)| {
            if left.is_empty() {
                return io::Result::Ok(None);
            }
            let read = store.read(&stream, left.start, left.end).await.inspect_err(|e| eprintln!("error: {e}"))?;
            left.start += len_of(&read);
            Ok(Some((stream::iter(read.into_iter().map(Ok)), (store, stream, left))))
        });
        let bytes = stream::iter(pieces.into_iter().map(Ok)).chain(rest.try_flatten());
        let mut response = Response::new(body::stream(bytes.chain(stream::iter(last.map(Ok)))));
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
        Ok(response)
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
        let mut bytes = BytesMut::new();
        let (mut len, mut searched) = (0, 0);
        while at + len < end {
            self.read(stream, at + len, end).await?.iter().for_each(|piece| bytes.extend_from_slice(piece));
            len = bytes.len() as u64;
            if let Some(cut) = json::cut(stream.kind, &bytes[searched..], READ_MAX.saturating_sub(searched)) {
                bytes.truncate(searched + cut);
                break;
            }
            // A message that is longer has no end so far.
            searched = if bytes.len() > READ_MAX { bytes.len() } else { 0 };
        }
        Ok(bytes.freeze())
    }
}

fn len_of(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Returns whether a list of tags has this one, which is compared weakly.
fn lists(value: &HeaderValue, tag: &str) -> bool {
    let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|listed| listed.strip_prefix("W/").unwrap_or(listed)).any(|listed| listed == tag || listed == "*")
}
