//! Requests that change streams: create, fork, append and close.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use millstream::server::RequestBody;

use crate::body::{self, Body};
use crate::fields;
use crate::json;
use crate::refusal::Refusal;
use crate::service::{App, content_type};
use crate::store::{Append, Done, Expiry, Fork, Kind, Meta, Stream};

const DEFAULT_TYPE: &str = "application/octet-stream";
const JSON: &str = "application/json";

impl App {
    pub(crate) async fn create(&self, request: Request<RequestBody>) -> Result<Response<Body>, Refusal> {
        let (parts, body) = request.into_parts();
        let (path, headers) = (parts.uri.path(), &parts.headers);
        let requested = fields::expiry(headers)?;
        let closed = fields::is_true(headers, &fields::CLOSED);
        let (body, permit) = self.body(body).await?;
        let fork = self.fork(headers).await?;
        let source = fork.as_ref().map(|fork| &fork.source.meta);
        let of_source = || source.map_or_else(|| DEFAULT_TYPE.to_owned(), |meta| meta.content_type.to_string());
        let media_type = fields::media_type(headers)?.unwrap_or_else(of_source);
        if source.is_some_and(|meta| *meta.content_type != *media_type) {
            return Err(Refusal::conflict("the source has another content type"));
        }
        let expiry = requested.or_else(|| source.map(|meta| meta.expiry)).unwrap_or(Expiry::Never);
        let is_json = media_type == JSON && !body.is_empty();
        let data = if is_json { json::messages(&body).map_err(Refusal::bad)? } else { body };
        let origin = fork.as_ref().map(|fork| (fork.source.meta.id, fork.at));
        let meta = Meta { id: 0, path: path.into(), content_type: media_type.into(), expiry, origin };
        let first = Append { content_type: "", data: &data, close: closed, seq: None, producer: None };
        let room = self.store.journal.room(path.len() + data.len()).await;
        let (stream, is_new) = self.store.create(meta, fork, &first, room)?;
        // The queue of the journal has a copy.
        drop((data, permit));
        self.store.journal.wait(stream.born()).await;
        let mut response = body::status(StatusCode::OK);
        let view = stream.view();
        let fields = response.headers_mut();
        content_type(fields, &stream);
        fields::position(fields, view.end, view.closed);
        if is_new {
            let host = fields::host(&parts.uri, headers);
            if let Ok(location) = HeaderValue::try_from(format!("http://{host}{path}")) {
                fields.insert(LOCATION, location);
            }
            *response.status_mut() = StatusCode::CREATED;
        }
        Ok(response)
    }

    /// Finds the source of a fork, and the position.
    async fn fork(&self, headers: &HeaderMap) -> Result<Option<Fork>, Refusal> {
        let offset = fields::text(headers, &fields::FORK_OFFSET)?;
        let sub = fields::text(headers, &fields::FORK_SUB_OFFSET)?;
        let Some(path) = fields::text(headers, &fields::FORKED_FROM)? else {
            return match (offset, sub) {
                (None, None) => Ok(None),
                _ => Err(Refusal::bad("a fork needs Stream-Forked-From")),
            };
        };
        let parse_sub = |text| fields::strict_integer(text).ok_or_else(|| Refusal::bad("the sub-offset is malformed"));
        let sub = sub.map(parse_sub).transpose()?.unwrap_or(0);
        let source = self.store.get(path).map_err(|status| match status {
            StatusCode::GONE => Refusal::conflict("the source was deleted"),
            status => Refusal::new(status, "there is no such source"),
        })?;
        self.store.journal.wait(source.born()).await;
        let end = source.view().end;
        let parse =
            |text| fields::parse_offset(text).ok_or_else(|| Refusal::bad("the offset of the fork is malformed"));
        let anchor = offset.map(parse).transpose()?.unwrap_or(end);
        self.check_offset(&source, anchor, end).await?;
        let beyond = || Refusal::bad("the fork begins beyond the end of the source");
        let at = match (sub, source.kind) {
            (0, _) => anchor,
            (_, Kind::Json) => self.after(&source, anchor, end, sub).await?.ok_or_else(beyond)?,
            _ => anchor.saturating_add(sub),
        };
        if at > end {
            return Err(beyond());
        }
        Ok(Some(Fork { source, at, given: offset.is_some() }))
    }

    /// Returns the position after so many messages.
    async fn after(&self, source: &Stream, from: u64, end: u64, messages: u64) -> Result<Option<u64>, Refusal> {
        let (mut at, mut left) = (from, messages);
        while at < end {
            for byte in self.store.bytes(source, at, end).await? {
                (at, left) = (at + 1, left - u64::from(byte == b'\n'));
                if left == 0 {
                    return Ok(Some(at));
                }
            }
        }
        Ok(None)
    }

    pub(crate) async fn append(&self, request: Request<RequestBody>) -> Result<Response<Body>, Refusal> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        let producer = fields::producer(headers)?;
        let seq = fields::text(headers, &fields::SEQ)?;
        let close = fields::is_true(headers, &fields::CLOSED);
        let (body, permit) = self.body(body).await?;
        let stream = self.stream(parts.uri.path()).await?;
        let media_type = match fields::media_type(headers)? {
            _ if body.is_empty() && close => String::new(),
            _ if body.is_empty() => return Err(Refusal::bad("the body is empty")),
            None => return Err(Refusal::bad("Content-Type is missing")),
            Some(media_type) => media_type,
        };
        let data = messages(&stream, &media_type, body)?;
        stream.touch();
        let append = Append { content_type: &media_type, data: &data, close, seq, producer };
        let room = self.store.journal.room(append.len()).await;
        let (done, number) = stream.append(&self.store.journal, &append, room);
        // The queue of the journal has a copy.
        let is_empty = data.is_empty();
        drop((data, permit));
        self.store.journal.wait(number).await;
        let Done { end, closed, seq, duplicate } = done?;
        let mut response = body::status(StatusCode::NO_CONTENT);
        let fields = response.headers_mut();
        fields::position(fields, end, closed);
        if let (Some(producer), Some(seq)) = (producer, seq) {
            fields.insert(fields::PRODUCER_EPOCH, producer.epoch.into());
            fields.insert(fields::PRODUCER_SEQ, seq.into());
            if !duplicate && !is_empty {
                *response.status_mut() = StatusCode::OK;
            }
        }
        Ok(response)
    }
}

/// Returns the bytes to append: for a JSON stream the messages of a JSON body, otherwise the body.
fn messages(stream: &Arc<Stream>, media_type: &str, body: Bytes) -> Result<Bytes, Refusal> {
    if stream.kind != Kind::Json || media_type != JSON {
        return Ok(body);
    }
    let messages = json::messages(&body).map_err(Refusal::bad)?;
    if messages.is_empty() { Err(Refusal::bad("the array is empty")) } else { Ok(messages) }
}
