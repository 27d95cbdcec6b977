//! Requests that the upstream has not answered.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode, Version};
use hyper::client::conn::TrySendError;

use super::body::ResponseBody;
#[cfg(feature = "__tls")]
use super::error::HandshakeError;
use super::events;
use super::fields;
use super::request_body::OutBody;

/// A request that got no response from the upstream.
pub(crate) enum RequestFailure {
    /// A request that this proxy does not pass on.
    Refused(StatusCode, &'static str),
    /// Too many requests are in progress.
    Full,
    /// The circuit is open. The next request may be sent after this time.
    Open(Duration),
    Connect(io::Error),
    #[cfg(feature = "__tls")]
    Handshake(HandshakeError),
    /// hyper has not begun to send the request, which is given back.
    Unsent(Box<Request<OutBody>>),
    Upstream(hyper::Error),
    /// The body of the request could not be read.
    Upload(StatusCode),
    /// The head of the response is not valid or too large, for this reason.
    Invalid(String),
    Timeout,
}

impl RequestFailure {
    /// Returns the failure of an attempt to send a request, which hyper gives back if it has not begun.
    pub(crate) fn of_attempt(mut failed: TrySendError<Request<OutBody>>) -> Self {
        match failed.take_message() {
            Some(request) => Self::Unsent(Box::new(request)),
            None => Self::Upstream(failed.into_error()),
        }
    }

    /// Returns whether the upstream is to blame, and not the request, its client or this proxy.
    pub(crate) fn is_of_upstream(&self) -> bool {
        !matches!(self, Self::Refused(..) | Self::Full | Self::Open(_) | Self::Upload(_) | Self::Invalid(_))
    }

    /// Returns the response of the proxy, whose text names no address. Reports the cause.
    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        self.report();
        let (status, text) = self.answer();
        let mut response = Response::new(ResponseBody::text(format!("{text}\n").into()));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Self::Open(left) = self {
            // In whole seconds, rounded up.
            let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            fields.insert(RETRY_AFTER, seconds.into());
        }
        fields::add_via(fields, Version::HTTP_11);
        response
    }

    fn report(&self) {
        let cause: &(dyn Error + 'static) = match self {
            // These are counted only. Reporting each of them would flood the log.
            Self::Refused(..) | Self::Full | Self::Open(_) | Self::Upload(_) => return,
            Self::Connect(error) => error,
            #[cfg(feature = "__tls")]
            Self::Handshake(error) => error,
            Self::Upstream(error) => error,
            Self::Invalid(why) => &io::Error::other(why.as_str()),
            Self::Unsent(_) => &io::Error::from(io::ErrorKind::ConnectionAborted),
            Self::Timeout => &io::Error::from(io::ErrorKind::TimedOut),
        };
        events::upstream_failed(cause);
    }

    fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Refused(status, text) => (*status, text),
            Self::Full => (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait for the server behind this proxy"),
            Self::Open(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "the server behind this proxy has failed; try again later")
            }
            Self::Connect(_) => (StatusCode::BAD_GATEWAY, "the server behind this proxy cannot be reached"),
            #[cfg(feature = "__tls")]
            Self::Handshake(_) => (StatusCode::BAD_GATEWAY, "the server behind this proxy cannot be reached securely"),
            Self::Upload(status) => (
                *status,
                match *status {
                    StatusCode::PAYLOAD_TOO_LARGE => "the body of the request is too large",
                    StatusCode::REQUEST_TIMEOUT => "the body of the request came too slowly",
                    _ => "the body of the request was not received to its end",
                },
            ),
            Self::Invalid(_) => (StatusCode::BAD_GATEWAY, INVALID),
            Self::Upstream(error) if error.is_parse() => (StatusCode::BAD_GATEWAY, INVALID),
            Self::Upstream(_) | Self::Unsent(_) => {
                (StatusCode::BAD_GATEWAY, "the server behind this proxy closed the connection without an answer")
            }
            Self::Timeout => (StatusCode::GATEWAY_TIMEOUT, "the server behind this proxy did not answer in time"),
        }
    }
}

const INVALID: &str = "the server behind this proxy sent a response that is not valid or too large";
