//! Errors of request bodies.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use http::StatusCode;
use http_body_util::LengthLimitError;

use crate::body::length_limit::length_limit;
use crate::server::error::BoxError;

/// Error of a request body that cannot be read further. If a service fails with it, boxed or as the
/// [source](Error::source) of another error, the server answers with 413 or 408, or the matching gRPC status.
///
/// It does not implement [`Error`] itself. `?` and [`Into`] convert it into the boxed error that frameworks recognise:
///
/// | | boxed | boxed, for a gRPC request with the feature `tonic-014` |
/// |---|---|---|
/// | [too large](Self::is_too_large) | [`LengthLimitError`]: 413 in axum | `tonic::Status`, `ResourceExhausted` |
/// | [too slow](Self::is_too_slow) | an error of this crate | `tonic::Status`, `DeadlineExceeded` |
/// | [broken](Self::is_broken) | [`hyper::Error`] | the same |
#[derive(Debug)]
pub struct BodyError {
    cause: Cause,
    grpc: bool,
}

#[derive(Debug)]
pub(in crate::server) enum Cause {
    /// The limit in bytes.
    TooLarge(u64),
    TooSlow(Duration),
    Broken(hyper::Error),
}

impl BodyError {
    pub(in crate::server) fn new(cause: Cause, grpc: bool) -> Self {
        Self { cause, grpc }
    }

    /// Returns whether the body is larger than [`Limits::body`](crate::server::Limits::body).
    pub fn is_too_large(&self) -> bool {
        matches!(self.cause, Cause::TooLarge(_))
    }

    /// Returns whether the body was slower than [`Limits::body_progress`](crate::server::Limits::body_progress) allows.
    pub fn is_too_slow(&self) -> bool {
        matches!(self.cause, Cause::TooSlow(_))
    }

    /// Returns whether the client did not send the body completely, or not as HTTP requires.
    pub fn is_broken(&self) -> bool {
        matches!(self.cause, Cause::Broken(_))
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::TooLarge(limit) => write!(f, "the request body is larger than {limit} bytes"),
            Cause::TooSlow(_) => f.write_str("the request body was too slow"),
            Cause::Broken(_) => f.write_str("the request body was not received to its end"),
        }
    }
}

impl From<BodyError> for BoxError {
    fn from(error: BodyError) -> Self {
        let message = error.to_string();
        let boxed: Self = match error.cause {
            Cause::TooLarge(_) => length_limit(),
            Cause::TooSlow(limit) => Box::new(Late(limit)),
            Cause::Broken(error) => return error.into(),
        };
        if error.grpc { grpc_status(boxed, message) } else { boxed }
    }
}

/// `FileTooLarge`, `TimedOut`, or `UnexpectedEof` for a body that is broken. The source is the boxed error.
impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        let kind = match error.cause {
            Cause::TooLarge(_) => io::ErrorKind::FileTooLarge,
            Cause::TooSlow(_) => io::ErrorKind::TimedOut,
            Cause::Broken(_) => io::ErrorKind::UnexpectedEof,
        };
        Self::new(kind, BoxError::from(error))
    }
}

#[derive(Debug)]
struct Late(Duration);

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "too few bytes of the request body arrived in {:?}", self.0)
    }
}

impl Error for Late {}

#[cfg(feature = "tonic-014")]
fn grpc_status(error: BoxError, message: String) -> BoxError {
    let code = if error.is::<Late>() { tonic::Code::DeadlineExceeded } else { tonic::Code::ResourceExhausted };
    let mut status = tonic::Status::new(code, message);
    status.set_source(error.into());
    Box::new(status)
}

#[cfg(not(feature = "tonic-014"))]
fn grpc_status(error: BoxError, _: String) -> BoxError {
    error
}

/// Returns the status for a service that fails with `error`, if a request body caused it.
pub fn status_of(error: &(dyn Error + 'static)) -> Option<StatusCode> {
    let mut error = Some(error);
    while let Some(cause) = error {
        if cause.is::<LengthLimitError>() {
            return Some(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if cause.is::<Late>() {
            return Some(StatusCode::REQUEST_TIMEOUT);
        }
        // The source of an `io::Error` is that of the error inside.
        let inner = cause.downcast_ref().and_then(io::Error::get_ref).map(|inner| inner as &(dyn Error + 'static));
        error = inner.or_else(|| cause.source());
    }
    None
}

#[cfg(test)]
mod tests;
