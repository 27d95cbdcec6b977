//! Requests that the upstream has not answered.

use std::error::Error;
use std::io;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode, Version};

use super::body::ResponseBody;
use super::fields;
use super::request_body::OutBody;
use crate::counters::log;
use crate::net::ConnectError;

/// A request that has got no response from the upstream.
pub(super) enum Failure {
    /// A request that this proxy does not pass on.
    Refused(StatusCode, &'static str),
    Connect(ConnectError),
    /// hyper has not begun to send the request, which is given back.
    Unsent(Box<Request<OutBody>>),
    Upstream(hyper::Error),
    Timeout,
}

impl Failure {
    /// Returns the response of the proxy, whose text names no address. Reports the cause.
    pub(super) fn into_response(self) -> Response<ResponseBody> {
        let (status, text) = self.answer();
        let mut response = Response::new(ResponseBody::text(format!("{text}\n").into()));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        fields::add_via(response.headers_mut(), Version::HTTP_11);
        response
    }

    fn answer(self) -> (StatusCode, &'static str) {
        let cause: &(dyn Error + 'static) = match &self {
            Self::Refused(status, text) => return (*status, text),
            Self::Connect(error) => error,
            Self::Upstream(error) => error,
            Self::Unsent(_) => &io::Error::from(io::ErrorKind::ConnectionAborted),
            Self::Timeout => &io::Error::from(io::ErrorKind::TimedOut),
        };
        log::upstream_failed(cause);
        match self {
            Self::Refused(status, text) => (status, text),
            Self::Connect(_) => (StatusCode::BAD_GATEWAY, "the server behind this proxy cannot be reached"),
            Self::Upstream(_) | Self::Unsent(_) => {
                (StatusCode::BAD_GATEWAY, "the server behind this proxy closed the connection without an answer")
            }
            Self::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the server behind this proxy did not answer in time"),
        }
    }
}
