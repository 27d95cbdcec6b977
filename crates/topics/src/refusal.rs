//! Why a request gets no events, and the response that says so.

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::body::TopicsBody;

/// Why a request gets no events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoTopic,
    TooManyTopics,
    NameTooLong,
    IdTooLong,
    MalformedBody,
    BodyTooLarge,
    MediaType,
    Method,
    Forbidden(String),
    Unknown(String),
    /// Until so many seconds have passed.
    Full(u64),
    /// The source of a topic is lost. Until so many seconds have passed.
    Lost(u64),
    /// All topics have ended, and the reader has all events.
    Ended,
}

impl Refusal {
    fn parts(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoTopic => (StatusCode::BAD_REQUEST, "no_topic"),
            Self::TooManyTopics => (StatusCode::BAD_REQUEST, "too_many_topics"),
            Self::NameTooLong => (StatusCode::BAD_REQUEST, "name_too_long"),
            Self::IdTooLong => (StatusCode::BAD_REQUEST, "id_too_long"),
            Self::MalformedBody => (StatusCode::BAD_REQUEST, "malformed_body"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "method"),
            Self::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_topic"),
            Self::Full(_) => (StatusCode::SERVICE_UNAVAILABLE, "full"),
            Self::Lost(_) => (StatusCode::SERVICE_UNAVAILABLE, "lost"),
            Self::Ended => (StatusCode::NO_CONTENT, ""),
        }
    }

    pub(crate) fn response(&self) -> Response<TopicsBody> {
        let (status, error) = self.parts();
        let text = match self {
            Self::Ended => String::new(),
            Self::Forbidden(topic) | Self::Unknown(topic) => json!({ "error": error, "topic": topic }).to_string(),
            _ => json!({ "error": error, "topic": Value::Null }).to_string(),
        };
        let has_text = !text.is_empty();
        let mut response = Response::new(TopicsBody::text(text));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if has_text {
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        match self {
            Self::Full(seconds) | Self::Lost(seconds) => drop(fields.insert(RETRY_AFTER, HeaderValue::from(*seconds))),
            Self::Method => drop(fields.insert(ALLOW, HeaderValue::from_static("GET, HEAD, POST"))),
            _ => {}
        }
        response
    }
}
