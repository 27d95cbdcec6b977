//! The part of a request that the gateway reads. The rest is passed on as it is.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;

use crate::error::ApiError;

/// A body for `POST /v1/chat/completions`.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    pub(crate) model: String,
    pub(crate) messages: Vec<Message>,
    #[serde(default)]
    pub(crate) stream: bool,
    pub(crate) max_tokens: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    #[allow(dead_code, reason = "checked to be there")]
    role: String,
    pub(crate) content: Option<Content>,
}

/// The text of a message, or its parts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string or an array of parts")]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
pub(crate) struct Part {
    /// Of a part that is text.
    pub(crate) text: Option<String>,
}

/// Returns the request in a body. The error names the field that is wrong.
pub(crate) fn parse(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(ChatRequest, Bytes), ApiError> {
    // Pages of other sites cannot send this type without being asked first.
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let message = "send Content-Type: application/json";
        return Err(ApiError::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let body = body.map_err(|error| ApiError::invalid(error.status(), "unreadable_body", error.body_text()))?;
    let mut json = serde_json::Deserializer::from_slice(&body);
    let request: ChatRequest = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        ApiError::field(&path, format!("{path}: {}", error.inner()))
    })?;
    json.end().map_err(|error| ApiError::field(".", error.to_string()))?;
    if request.messages.is_empty() {
        return Err(ApiError::field("messages", "messages: there must be at least one".to_owned()));
    }
    Ok((request, body))
}
