//! The forms of a stream of events: as it is, compressed, or JSON lines. A decoder returns each as server-sent events.

use std::io::Write;

use flate2::write::GzDecoder;
use testkit::sim::{Dice, Head};

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// Through a layer of the service, which adds comments.
    Layered,
    Gzip,
    Lines,
}

impl Form {
    pub(crate) fn choose(dice: &mut Dice) -> Self {
        *dice.pick(&[Self::Plain, Self::Plain, Self::Plain, Self::Gzip, Self::Gzip, Self::Lines, Self::Layered])
    }

    /// Returns the first part of the path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Plain | Self::Gzip => "events",
            Self::Layered => "layered",
            Self::Lines => "lines",
        }
    }

    /// Returns the fields of the request.
    pub(crate) fn fields(self) -> &'static str {
        if self == Self::Gzip { "Accept-Encoding: gzip\r\n" } else { "" }
    }

    /// Returns whether the head of a response is right, from a hub that compresses or does not.
    pub(crate) fn is_right(self, head: &Head, has_gzip: bool) -> bool {
        let kind = if self == Self::Lines { "application/x-ndjson" } else { "text/event-stream" };
        let encoding = (self == Self::Gzip && has_gzip).then_some("gzip");
        let vary = (self != Self::Lines && has_gzip).then_some("accept-encoding");
        head.field("content-type") == Some(kind)
            && head.field("content-encoding") == encoding
            && head.field("vary") == vary
            && head.field("cache-control") == Some("no-cache, no-transform")
    }
}

pub(crate) enum Decoder {
    Plain,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    /// The bytes of a line that is not complete.
    Lines(Vec<u8>),
}

impl Decoder {
    pub(crate) fn new(form: Form, has_gzip: bool) -> Self {
        match form {
            Form::Gzip if has_gzip => Self::Gzip(Box::new(GzDecoder::new(Vec::new()))),
            Form::Lines => Self::Lines(Vec::new()),
            _ => Self::Plain,
        }
    }

    /// Appends what the bytes of a response are to `text`.
    pub(crate) fn add(&mut self, bytes: &[u8], text: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::Plain => text.extend(bytes),
            Self::Gzip(decoder) => {
                decoder.write_all(bytes).and_then(|()| decoder.flush()).map_err(|error| error.to_string())?;
                text.append(decoder.get_mut());
            }
            Self::Lines(rest) => {
                rest.extend(bytes);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    text.extend(from_line(std::str::from_utf8(&line[..end]).map_err(|error| error.to_string())?)?);
                }
            }
        }
        Ok(())
    }

    /// Returns whether a stream may end here, and not within a line or a member of gzip.
    pub(crate) fn ends_well(self) -> bool {
        match self {
            Self::Plain => true,
            Self::Gzip(decoder) => decoder.finish().is_ok(),
            Self::Lines(rest) => rest.is_empty(),
        }
    }
}

/// Returns the event of a line, or the comment that an empty one is.
fn from_line(line: &str) -> Result<Vec<u8>, String> {
    let within = |begin: &str| line.strip_prefix(begin).and_then(|rest| rest.strip_suffix('}'));
    let text = match (line, within("{\"gap\":"), within("{\"id\":\"")) {
        ("", ..) => Some(":\n".to_owned()),
        (_, Some(gap), _) => Some(format!("event: gap\ndata: {gap}\n\n")),
        (.., Some(rest)) => rest.split_once("\",\"data\":").map(|(id, data)| format!("data: {data}\nid: {id}\n\n")),
        _ => None,
    };
    text.map(String::into_bytes).ok_or_else(|| format!("not a line: {line:?}"))
}
