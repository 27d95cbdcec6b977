//! Answers that are errors.

use std::borrow::Cow;
use std::fmt;
use std::io;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::body::{self, Body};

/// An answer that is an error.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    text: Cow<'static, str>,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into(), fields: Vec::new() }
    }

    /// A refusal that programs read.
    pub(crate) fn json(status: StatusCode, value: &serde_json::Value) -> Self {
        Self::new(status, value.to_string()).with(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    pub(crate) fn bad(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn conflict(text: &'static str) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    pub(crate) fn deleted() -> Self {
        Self::new(StatusCode::GONE, "the stream was deleted")
    }

    pub(crate) fn disk_full() -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "the disk is full")
    }

    pub(crate) fn with(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(body::bytes(format!("{}\n", self.text)));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response.headers_mut().extend(self.fields);
        response
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Bytes that cannot be read. They are not found if the stream was deleted meanwhile.
impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            return Self::deleted();
        }
        eprintln!("error: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the stream cannot be read")
    }
}
