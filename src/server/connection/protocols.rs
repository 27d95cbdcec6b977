//! hyper's servers with the limits applied. The timers of HTTP/1 are off: the reaper replaces them.

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::server::limits::Limits;
use crate::sys::caps::is_disabled;

/// Times of this length or more are no limit.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Header fields for which hyper does not allocate.
const FIELDS: usize = 100;

type Hook<T> = Option<Arc<dyn Fn(&mut T) + Send + Sync>>;

#[derive(Clone, Default)]
pub(in crate::server) struct Hooks {
    pub(in crate::server) one: Hook<http1::Builder>,
    pub(in crate::server) two: Hook<http2::Builder<TokioExecutor>>,
}

#[derive(Debug)]
pub(in crate::server) struct Protocols {
    pub(in crate::server) one: http1::Builder,
    pub(in crate::server) two: http2::Builder<TokioExecutor>,
    /// Whether pending bodies of HTTP/1 are taken over from hyper.
    pub(in crate::server) takes_over: bool,
    /// Bytes of request bodies that hyper holds for a connection of HTTP/2, at most.
    pub(in crate::server) window: usize,
}

impl Protocols {
    /// The hooks come last, so that they can override everything.
    pub(in crate::server) fn new(limits: &Limits, hooks: &Hooks, takeover: bool) -> Self {
        let mut one = http1::Builder::new();
        // A body frame is queued if there is any space, so a mapped file stays one piece. hyper's default of 408 KiB is
        // what each slow reader could make a connection hold. On loopback it saved calls but no measurable CPU time.
        one.half_close(!limits.half_close.is_zero())
            .header_read_timeout(None)
            .max_header_size(limits.head)
            .max_buf_size(limits.buffer.max(limits.head));
        if limits.fields > FIELDS {
            // Smaller limits are checked in the adapter.
            one.max_headers(limits.fields);
        }
        let mut two = http2::Builder::new(TokioExecutor::new());
        // For the adaptive window and for pings.
        two.timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head).unwrap_or(u32::MAX))
            // As for HTTP/1. hyper's default is 400 KiB; on loopback there was no measurable difference.
            // hyper panics for more.
            .max_send_buf_size(limits.buffer.min(u32::MAX as usize))
            .initial_stream_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window);
        let (interval, timeout) = (limits.ping_interval, limits.ping_timeout);
        // hyper adds the interval to the current time, which must not overflow.
        if !interval.is_zero() && interval < YEAR {
            two.keep_alive_interval(interval).keep_alive_timeout(timeout.min(YEAR));
        }
        if limits.adaptive_window {
            two.adaptive_window(true);
        }
        if let Some(change) = &hooks.one {
            change(&mut one);
        }
        if let Some(change) = &hooks.two {
            change(&mut two);
        }
        // The options of a hook may change how hyper frames a body.
        let takes_over = takeover && hooks.one.is_none() && !is_disabled("takeover");
        // A hook may change it, and an adaptive one grows.
        let is_known = !limits.adaptive_window && hooks.two.is_none();
        let window = if is_known { limits.connection_window as usize } else { usize::MAX };
        Self { one, two, takes_over, window }
    }
}
