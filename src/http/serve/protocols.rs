//! hyper's servers, with our limits. Their own timers are off: the sweep does what they are for.

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::limits::Limits;

/// Header fields for which hyper has room without an allocation.
const FIELDS: usize = 100;

#[derive(Debug)]
pub(super) struct Protocols {
    pub(super) one: http1::Builder,
    pub(super) two: http2::Builder<TokioExecutor>,
}

impl Protocols {
    pub(super) fn new(limits: &Limits) -> Self {
        let mut one = http1::Builder::new();
        // A body frame is queued if there is any room for it, whatever its size, so a mapped file stays one piece. hyper's
        // default of 408 KiB is what each slow reader could make a connection keep, and on loopback it saved calls but
        // no CPU time that could be told from noise.
        one.header_read_timeout(None).max_header_size(limits.head).max_buf_size(limits.buffer.max(limits.head));
        if limits.fields > FIELDS {
            // Fewer are looked for in the adapter.
            one.max_headers(limits.fields);
        }
        let mut two = http2::Builder::new(TokioExecutor::new());
        // The timer is for the adaptive window.
        two.timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
            // As for HTTP/1. hyper's default is 400 KiB; on loopback the difference could not be told from noise.
            .max_send_buf_size(limits.buffer)
            .initial_stream_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window);
        if limits.adaptive_window {
            two.adaptive_window(true);
        }
        Self { one, two }
    }
}
