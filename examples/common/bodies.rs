//! Response bodies of the routes. The streaming ones are written as for a plain hyper service: one frame per event.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Interval, MissedTickBehavior, interval};

pub(crate) const HELLO: &[u8] = br#"{"msg":"ok"}"#;

/// One event of `/tokens`: 40 bytes, about the size that a language model streams at a time.
static TOKEN: &[u8] = b"data: {\"token\": \"hello world this is\"}\n\n";

/// Number of events in a response of `/tokens`.
const TOKENS: usize = 100;

/// One event of `/events`: 100 bytes of payload and 8 bytes of framing.
static EVENT: [u8; 108] = {
    let mut event = [b'x'; 108];
    event.split_at_mut(6).0.copy_from_slice(b"data: ");
    event.split_at_mut(106).1.copy_from_slice(b"\n\n");
    event
};

/// [`TOKENS`] small events with a yield to the runtime between them, as if each were computed.
#[derive(Debug)]
pub(crate) struct Tokens {
    left: usize,
    yielded: bool,
}

impl Tokens {
    pub(crate) fn new() -> Self {
        Self { left: TOKENS, yielded: true }
    }
}

impl Body for Tokens {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if !self.yielded {
            self.yielded = true;
            // `yield_now` registers the wake-up, so it can be dropped then. Outside a runtime it is ready at once.
            ready!(pin!(tokio::task::yield_now()).poll(cx));
        }
        self.yielded = false;
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(TOKEN)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }
}

/// Events at a steady rate until the client disconnects.
#[derive(Debug)]
pub(crate) struct Events {
    ticks: Interval,
}

impl Events {
    /// Reads `hz` from a query such as `hz=10`: 1 to 1000 events a second, default 10.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub(crate) fn new(query: Option<&str>) -> Self {
        let hz = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("hz="));
        let hz = hz.and_then(|hz| hz.parse::<u32>().ok()).unwrap_or(10);
        let mut ticks = interval(Duration::from_secs(1) / hz.clamp(1, 1000));
        // A slow reader gets the next event, not a burst of old ones.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { ticks }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.ticks.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&EVENT)))))
    }
}
