//! Why the body of a request cannot be read on, in words that frameworks know.

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::{Full, LengthLimitError, Limited};

use super::http_service::BoxError;

/// Why the body of a request cannot be read on. A service that fails with it, boxed or as the
/// [source](Error::source) of another error, has the request answered for it: 413 or 408, or the gRPC status that says so.
///
/// It does not implement [`Error`] itself, as [`anyhow::Error`] does not: `?` and [`Into`] make it the boxed error that
/// frameworks look for.
///
/// | | boxed | boxed, in a request of gRPC, with the feature `tonic` |
/// |---|---|---|
/// | [too large](Self::is_too_large) | [`http_body_util::LengthLimitError`], for which axum's extractors answer 413 | `tonic::Status`, `ResourceExhausted` |
/// | [too slow](Self::is_too_slow) | an error of this crate | `tonic::Status`, `DeadlineExceeded` |
/// | [broken](Self::is_broken) | [`hyper::Error`] | the same |
///
/// [`anyhow::Error`]: https://docs.rs/anyhow/latest/anyhow/struct.Error.html
#[derive(Debug)]
pub struct BodyError {
    cause: Cause,
    grpc: bool,
}

#[derive(Debug)]
pub(super) enum Cause {
    /// The limit, in bytes.
    TooLarge(u64),
    /// The limit.
    TooSlow(Duration),
    Broken(hyper::Error),
}

impl BodyError {
    pub(super) fn new(cause: Cause, grpc: bool) -> Self {
        Self { cause, grpc }
    }

    /// The body is larger than [`Limits::body`](super::Limits::body).
    pub fn is_too_large(&self) -> bool {
        matches!(self.cause, Cause::TooLarge(_))
    }

    /// The body brought too little in the time of [`Limits::body_progress`](super::Limits::body_progress).
    pub fn is_too_slow(&self) -> bool {
        matches!(self.cause, Cause::TooSlow(_))
    }

    /// The client did not send the body to its end, or not as HTTP requires it.
    pub fn is_broken(&self) -> bool {
        matches!(self.cause, Cause::Broken(_))
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::TooLarge(limit) => write!(f, "the request body is larger than {limit} bytes"),
            Cause::TooSlow(limit) => write!(f, "the request body brought too little in {limit:?}"),
            Cause::Broken(_) => f.write_str("the request body was not received to its end"),
        }
    }
}

impl From<BodyError> for BoxError {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        let boxed: Self = match error.cause {
            Cause::TooLarge(_) => length_limit(),
            Cause::TooSlow(_) => Box::new(Late(message.clone())),
            Cause::Broken(error) => return error.into(),
        };
        if error.grpc { grpc_status(boxed, message) } else { boxed }
    }
}

/// A body that was too slow.
#[derive(Debug)]
struct Late(String);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Late {}

/// A [`LengthLimitError`], which only a body that is limited can make.
fn length_limit() -> BoxError {
    let body = pin!(Limited::new(Full::new(Bytes::from_static(b"x")), 0));
    match body.poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Err(error))) => error,
        _ => unreachable!("internal: one byte is more than none"),
    }
}

#[cfg(feature = "tonic")]
fn grpc_status(error: BoxError, message: String) -> BoxError {
    let code = if error.is::<Late>() { tonic::Code::DeadlineExceeded } else { tonic::Code::ResourceExhausted };
    let mut status = tonic::Status::new(code, message);
    status.set_source(error.into());
    Box::new(status)
}

#[cfg(not(feature = "tonic"))]
fn grpc_status(error: BoxError, _: String) -> BoxError {
    error
}

/// How a request is answered whose service fails with `error`, if it says that the body was not received.
pub(super) fn status_of(error: &(dyn Error + 'static)) -> Option<StatusCode> {
    let mut error = Some(error);
    while let Some(cause) = error {
        if cause.is::<LengthLimitError>() {
            return Some(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if cause.is::<Late>() {
            return Some(StatusCode::REQUEST_TIMEOUT);
        }
        error = cause.source();
    }
    None
}
