//! Errors in the JSON of OpenAI's API.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_resumable::StreamError;
use serde_json::json;

/// An answer that is an error.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// The `type` of the error.
    kind: &'static str,
    code: &'static str,
    message: String,
    /// The field of the request that is wrong.
    param: Option<String>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code, message: message.into(), param: None }
    }

    /// The client must change the request.
    pub(crate) fn invalid(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, message)
    }

    /// The body of the request does not fit at the path `param`, such as `messages[0].role`.
    pub(crate) fn field(param: &str, message: String) -> Self {
        // The path of an error outside of any field.
        let param = Some(param).filter(|param| *param != ".").map(str::to_owned);
        Self { param, ..Self::invalid(StatusCode::BAD_REQUEST, "invalid_json", message) }
    }

    pub(crate) fn no_key() -> Self {
        Self::invalid(StatusCode::UNAUTHORIZED, "invalid_api_key", "send a valid key: Authorization: Bearer SECRET")
    }

    pub(crate) fn no_generation() -> Self {
        Self::invalid(StatusCode::NOT_FOUND, "generation_not_found", "there is no generation with this id")
    }

    pub(crate) fn too_many(limit: usize) -> Self {
        let message = format!("{limit} requests of this key are in progress, which is its limit");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "concurrency_limit", message)
    }

    /// The upstream cannot be reached, or its answer is invalid.
    pub(crate) fn upstream(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "upstream_error", "bad_upstream", message)
    }

    /// The upstream is silent.
    pub(crate) fn silent() -> Self {
        let message = "the upstream was silent for too long";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "upstream_error", "upstream_timeout", message)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn json(&self) -> String {
        let Self { kind, code, message, param, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}}).to_string()
    }
}

impl From<StreamError> for ApiError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NotFound | StreamError::LongKey => Self::no_generation(),
            StreamError::Full | StreamError::TooManyReaders => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "overloaded", error.to_string())
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal", error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        (self.status, headers, self.json()).into_response()
    }
}

impl From<ApiError> for Response {
    fn from(error: ApiError) -> Self {
        error.into_response()
    }
}
