//! Conversion of an event to an entry of a stream, and back.
//!
//! ```text
//!  writer 9f0c…  number 17  event token  data Hello  retry 2000  comment …
//!  └── entries of hubs ──┘  └─ the fields that the event has ────────────┘
//! ```
//!
//! Redis compresses entries with the same fields in the same order, so the fields are always written in this order. An
//! entry of another program, without the first two fields, is an event like others, but duplicates of it are not
//! detected.

use std::time::Duration;

use redis::{Cmd, RedisResult, Value, from_redis_value};

use super::id::Id;
use super::seen::Stamp;
use millstream::internal::log_queue::Size;
use millstream::sse::Event;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug)]
pub(crate) struct Fields(Vec<(&'static str, String)>);

impl Fields {
    pub(crate) fn new(event: &Event) -> Self {
        let parts = event.parts();
        // Limited to the number of milliseconds that can be parsed.
        let retry = parts.retry.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX).to_string());
        let texts = [
            ("event", parts.event.map(str::to_owned)),
            ("data", parts.data.map(str::to_owned)),
            ("retry", retry),
            ("comment", parts.comment.map(str::to_owned)),
        ];
        Self(texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect())
    }

    pub(crate) fn write(&self, stamp: Stamp, command: &mut Cmd) {
        command.arg("writer").arg(format!("{:016x}", stamp.writer)).arg("number").arg(stamp.number);
        for (name, text) in &self.0 {
            command.arg(name).arg(text);
        }
    }
}

impl Size for Fields {
    fn bytes(&self) -> usize {
        64 + self.0.iter().map(|(name, text)| name.len() + text.len() + 16).sum::<usize>()
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: Id,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) event: Event,
    pub(crate) bytes: usize,
}

impl Entry {
    pub(crate) fn all(reply: Value) -> RedisResult<Vec<Self>> {
        let entries: Vec<(String, Pairs)> = from_redis_value(reply)?;
        entries.into_iter().map(|(id, fields)| Self::read(&id, fields)).collect()
    }

    fn read(id: &str, fields: Pairs) -> RedisResult<Self> {
        let strange = || (redis::ErrorKind::UnexpectedReturnType, "this is not the id of an entry");
        let id = Id::parse(id).ok_or_else(strange)?;
        let bytes = fields.iter().map(|(name, text)| name.len() + text.len() + 16).sum::<usize>() + 64;
        let (mut event, mut writer, mut number) = (Event::new(), None, None);
        for (name, text) in fields {
            // Valid UTF-8 is not copied, and everything that a hub appends is valid.
            let text = String::from_utf8(text).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
            event = match &*name {
                b"data" => event.data(text),
                b"event" => event.event(text),
                b"comment" => event.comment(text),
                b"retry" => match text.parse() {
                    Ok(ms) => event.retry(Duration::from_millis(ms)),
                    Err(_) => event,
                },
                b"writer" => {
                    writer = u64::from_str_radix(&text, 16).ok();
                    event
                }
                b"number" => {
                    number = text.parse().ok();
                    event
                }
                _ => event,
            };
        }
        let stamp = writer.zip(number).map(|(writer, number)| Stamp { writer, number });
        Ok(Self { id, stamp, event, bytes })
    }
}

#[cfg(test)]
mod tests;
