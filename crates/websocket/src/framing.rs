//! Events as frames of WebSockets, [RFC 6455 §5](https://www.rfc-editor.org/rfc/rfc6455#section-5).

use bytes::Bytes;
use http::HeaderValue;
use millstream::sse::{EndReason, EventParts, Framing, FramingEnd, JsonLines};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

/// An empty ping.
const PING: &[u8] = &[0x89, 0];

/// The first byte of a close frame.
const CLOSE: u8 = 0x88;

/// The part of an event that is a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    Text,
    Json,
    Binary,
}

#[derive(Debug)]
pub(crate) struct MessageFraming(pub(crate) Payload);

impl Framing for MessageFraming {
    /// Not used: a response that switches protocols has no body.
    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static("application/octet-stream")
    }

    fn frame(&self, event: EventParts<'_>, to: &mut Vec<u8>) {
        let Some(data) = event.data else { return };
        let mut line = Vec::new();
        let (payload, kind) = match (self.0, event.id) {
            (Payload::Text, Some(_)) => (data.as_bytes(), Data::Text),
            (Payload::Binary, Some(_)) => (data.as_bytes(), Data::Binary),
            // A gap is an object of JSON in each form.
            (Payload::Json, _) | (_, None) => {
                JsonLines::new().with_ids().frame(event, &mut line);
                (line.trim_ascii_end(), Data::Text)
            }
        };
        write(Frame::message(Bytes::copy_from_slice(payload), OpCode::Data(kind), true), to);
    }

    fn keep_alive(&self) -> &'static [u8] {
        PING
    }

    fn end(&self, end: FramingEnd, to: &mut Vec<u8>) {
        let code = match end.reason {
            EndReason::Closed => CloseCode::Normal,
            EndReason::TooSlow => CloseCode::Again,
            _ => CloseCode::Away,
        };
        let reason = format!("retry: {}", end.retry.as_millis());
        write(Frame::close(Some(CloseFrame { code, reason: reason.into() })), to);
    }
}

fn write(frame: Frame, to: &mut Vec<u8>) {
    frame.format(to).expect("internal: a vector takes all bytes");
}

/// Returns the code and the reason, if `frame` is the end of the events.
pub(crate) fn as_close(frame: &[u8]) -> Option<CloseFrame> {
    let (head, payload) = frame.split_at_checked(2)?;
    if head[0] != CLOSE {
        return None;
    }
    let (code, reason) = payload.split_first_chunk()?;
    let reason = String::from_utf8_lossy(reason).into_owned();
    Some(CloseFrame { code: u16::from_be_bytes(*code).into(), reason: reason.into() })
}
