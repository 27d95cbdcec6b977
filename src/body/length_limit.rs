//! The error of a body over its limit, which frameworks answer with 413.

use std::error::Error;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use http_body_util::{Full, LengthLimitError, Limited};

/// Returns a [`LengthLimitError`], which only a limited body can create.
pub(crate) fn length_limit() -> Box<dyn Error + Send + Sync> {
    let body = pin!(Limited::new(Full::new(Bytes::from_static(b"x")), 0));
    match body.poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Err(error))) => error,
        _ => unreachable!("internal: one byte is more than none"),
    }
}

/// Returns whether the error, or one of its sources, is the error of a body over its limit.
pub(crate) fn is_length_limit(error: &(dyn Error + 'static)) -> bool {
    let mut error = Some(error);
    while let Some(cause) = error {
        if cause.is::<LengthLimitError>() {
            return true;
        }
        error = cause.source();
    }
    false
}
