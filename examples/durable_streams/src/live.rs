//! Server-sent events: an event with data for each batch of bytes, and one with the offset after it.

use std::pin::{Pin, pin};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use tokio::time::Instant;

use crate::body::Body;
use crate::service::App;
use crate::store::{Kind, Stream};
use crate::{fields, json};

struct Reader {
    app: Arc<App>,
    stream: Arc<Stream>,
    at: u64,
    cursor: Option<u64>,
    /// Until the connection or the server ends. One for all events, because each registration costs locks.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether the client knows where it is.
    told: bool,
    done: bool,
}

impl App {
    pub(crate) fn events(self: &Arc<Self>, stream: Arc<Stream>, at: u64, cursor: Option<u64>) -> Response<Body> {
        let kind = stream.kind;
        let (until, ending) = (Instant::now() + self.events, self.ending.clone());
        let over = Box::pin(async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        });
        let reader = Reader { app: Arc::clone(self), stream, at, cursor, over, told: false, done: false };
        let events = stream::unfold(reader, async |mut reader| Some((Ok(reader.next().await?), reader)));
        let mut response = Response::new(Body::new(events, None));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if kind == Kind::Binary {
            headers.insert(fields::SSE_ENCODING, HeaderValue::from_static("base64"));
        }
        response
    }
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let stream = Arc::clone(&self.stream);
        loop {
            let mut changed = pin!(stream.changed.notified());
            changed.as_mut().enable();
            // The end and the closure are read together, so a closed stream has no more bytes than these.
            let view = stream.view();
            if view.gone {
                return None;
            }
            if self.at < view.end || !self.told || view.closed {
                let mut out = BytesMut::new();
                if self.at < view.end {
                    let bytes = self.app.bytes(&stream, self.at, view.end).await.ok()?;
                    self.at += bytes.len() as u64;
                    data(&mut out, stream.kind, &bytes);
                }
                let is_last = self.at == view.end;
                self.done = view.closed && is_last;
                self.told = is_last;
                self.control(&mut out, is_last);
                return Some(out.freeze());
            }
            if self.app.ending.is_cancelled() {
                return None;
            }
            tokio::select! {
                () = changed => {}
                () = &mut self.over => {
                    self.done = true;
                    return None;
                }
            }
        }
    }

    fn control(&mut self, out: &mut BytesMut, is_last: bool) {
        out.put_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
        out.put_slice(fields::offset_text(self.at).as_bytes());
        if self.done {
            out.put_slice(b"\",\"upToDate\":true,\"streamClosed\":true}\n\n");
            return;
        }
        out.put_slice(b"\",\"streamCursor\":\"");
        out.put_slice(fields::cursor(self.cursor).to_string().as_bytes());
        out.put_slice(if is_last { b"\",\"upToDate\":true}\n\n" } else { b"\"}\n\n" });
    }
}

/// Adds an event with the bytes, whatever is in them.
fn data(out: &mut BytesMut, kind: Kind, bytes: &[u8]) {
    out.reserve(bytes.len() + bytes.len() / 2 + 64);
    out.put_slice(b"event: data\n");
    match kind {
        Kind::Binary => {
            out.put_slice(b"data:");
            out.put_slice(STANDARD.encode(bytes).as_bytes());
            out.put_u8(b'\n');
        }
        Kind::Json => {
            let messages = bytes.strip_suffix(json::END).unwrap_or(bytes);
            out.put_slice(b"data:[\n");
            lines(out, messages);
            out.put_slice(b"data:]\n");
        }
        Kind::Text => lines(out, bytes),
    }
    out.put_u8(b'\n');
}

/// Adds each line as a field. A carriage return ends a line as well, so that no byte of the data ends an event.
fn lines(out: &mut BytesMut, mut bytes: &[u8]) {
    loop {
        let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let line = &bytes[..end.unwrap_or(bytes.len())];
        out.put_slice(b"data:");
        if line.first() == Some(&b' ') {
            // A client removes one space.
            out.put_u8(b' ');
        }
        out.put_slice(line);
        out.put_u8(b'\n');
        let Some(end) = end else { break };
        let skipped = if bytes[end..].starts_with(b"\r\n") { 2 } else { 1 };
        bytes = &bytes[end + skipped..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_data_ends_an_event() {
        let event = |kind, bytes: &[u8]| {
            let mut out = BytesMut::new();
            data(&mut out, kind, bytes);
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(event(Kind::Text, b"a\r\n\r b\n"), "event: data\ndata:a\ndata:\ndata:  b\ndata:\n\n");
        assert_eq!(event(Kind::Json, b"1,\n2,\n"), "event: data\ndata:[\ndata:1,\ndata:2\ndata:]\n\n");
        assert_eq!(event(Kind::Binary, &[0, 255]), "event: data\ndata:AP8=\n\n");
    }
}
