//! The topics and the id that a request asks for: from its query, or from its body.

use std::collections::HashSet;

use form_urlencoded::parse;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use serde_json::Value;

use crate::refusal::Refusal;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The contents of a request for events.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The names, each once.
    pub(crate) names: Vec<String>,
    pub(crate) last: LastId,
}

/// The id that a request has sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum LastId {
    #[default]
    None,
    /// Not UTF-8.
    Bad,
    Id(String),
}

/// How the body of a request is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Form,
    Json,
}

impl Media {
    /// Returns the form of a body with these fields; `None` if it is another one.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let media = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = media.split_once(';').map_or(media, |(essence, _)| essence).trim();
        if essence.eq_ignore_ascii_case("application/json") {
            Some(Self::Json)
        } else {
            essence.eq_ignore_ascii_case("application/x-www-form-urlencoded").then_some(Self::Form)
        }
    }
}

impl Asked {
    /// Reads a query, or the body of a form. The header `Last-Event-ID` counts more.
    pub(crate) fn of_pairs(headers: &HeaderMap, pairs: &[u8]) -> Self {
        let mut asked = Self::default();
        for (key, value) in parse(pairs) {
            match &*key {
                "topic" => asked.names.push(value.into_owned()),
                "lastEventId" if asked.last == LastId::None => asked.last = LastId::of(&value),
                _ => {}
            }
        }
        asked.with(headers)
    }

    /// Reads a body. The header `Last-Event-ID` counts more.
    pub(crate) fn of_body(headers: &HeaderMap, media: Media, body: &[u8]) -> Result<Self, Refusal> {
        match media {
            Media::Form => Ok(Self::of_pairs(headers, body)),
            Media::Json => Self::of_json(body).map(|asked| asked.with(headers)).ok_or(Refusal::MalformedBody),
        }
    }

    /// `None` if the body is not as documented.
    fn of_json(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let mut asked = Self::default();
        for name in body.get("topics")?.as_array()? {
            asked.names.push(name.as_str()?.to_owned());
        }
        asked.last = match body.get("lastEventId") {
            None | Some(Value::Null) => LastId::None,
            Some(last) => LastId::of(last.as_str()?),
        };
        Some(asked)
    }

    /// Takes the id of a header, and leaves out names that come again.
    fn with(mut self, headers: &HeaderMap) -> Self {
        let mut names = HashSet::new();
        self.names.retain(|name| names.insert(name.clone()));
        if let Some(last) = headers.get(LAST_EVENT_ID) {
            self.last = last.to_str().map_or(LastId::Bad, LastId::of);
        }
        self
    }
}

impl LastId {
    /// An empty id counts as no id.
    fn of(id: &str) -> Self {
        if id.is_empty() { Self::None } else { Self::Id(id.to_owned()) }
    }
}

#[cfg(test)]
mod tests;
