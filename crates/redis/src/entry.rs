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
mod tests {
    use super::*;

    fn reply(id: &str, command: &Cmd) -> Value {
        let text = |text: &[u8]| Value::BulkString(text.to_vec());
        let arguments = command.args_iter().map(|argument| match argument {
            redis::Arg::Simple(bytes) => text(bytes),
            _ => panic!("the argument is missing"),
        });
        Value::Array(vec![Value::Array(vec![text(id.as_bytes()), Value::Array(arguments.collect())])])
    }

    #[test]
    fn what_is_written_is_read() {
        let long = "x".repeat(100_000);
        for event in [
            Event::new(),
            Event::new().data(""),
            Event::new().data("a\r\nb\0é").event("token"),
            Event::new().retry(Duration::from_millis(u64::MAX)),
            Event::new().data(long).retry(Duration::from_millis(1500)).comment("c\nd"),
        ] {
            let stamp = Stamp { writer: 0xab, number: u64::MAX };
            let mut command = Cmd::new();
            Fields::new(&event).write(stamp, &mut command);
            let read = Entry::all(reply("7-1", &command)).unwrap().pop().unwrap();
            assert!(read.bytes >= command.args_iter().map(|_| 4).sum::<usize>(), "{}", read.bytes);
            assert_eq!((read.id.to_string(), read.stamp, read.event), ("7-1".to_owned(), Some(stamp), event));
        }
    }

    #[test]
    fn a_retry_that_is_too_long_is_the_longest() {
        let mut command = Cmd::new();
        Fields::new(&Event::new().retry(Duration::MAX)).write(Stamp { writer: 1, number: 1 }, &mut command);
        let read = Entry::all(reply("7-1", &command)).unwrap().pop().unwrap();
        assert_eq!(read.event.parts().retry, Some(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn what_others_have_written_is_an_event_as_well() {
        let mut command = Cmd::new();
        command.arg("data").arg(b"\xff!").arg("retry").arg("soon").arg("more").arg("of it").arg("number").arg("7");
        let read = Entry::all(reply("7-1", &command)).unwrap().pop().unwrap();
        assert_eq!((read.stamp, read.event), (None, Event::new().data("\u{fffd}!")));
        assert!(Entry::all(reply("seven", &command)).is_err());
    }
}
