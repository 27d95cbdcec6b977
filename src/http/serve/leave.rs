//! Clients of HTTP/1 that end their side of the connection while they are answered: half-closed, or gone.
//!
//! hyper does not read while it answers if half-closed clients are to be served, so it would not notice one that has left
//! before something is sent to it. Here the socket is watched meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::watch::Watch;
use crate::net::{Leaving, Pulse};

/// Watches the peer of one connection.
#[derive(Debug)]
pub(super) struct Leave {
    limit: Duration,
    /// Since the peer has ended its side: when its answer is looked at again, and what was sent before.
    silence: Option<(Pin<Box<Sleep>>, u64)>,
    /// Bytes received when last looked.
    received: Option<u64>,
}

impl Leave {
    /// `None` where half-closed clients are not served: hyper reads, and sees the end itself.
    pub(super) fn new(limit: Duration) -> Option<Self> {
        (!limit.is_zero()).then_some(Self { limit, silence: None, received: None })
    }

    /// Ready when the peer has left, or has ended its side and the answer has been silent for as long as it may be.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, watch: &Watch) -> Poll<()> {
        if watch.requests().1 == 0 {
            // hyper reads.
            (self.silence, self.received) = (None, None);
            return Poll::Pending;
        }
        let Some(pulse) = watch.handle.pulse() else { return Poll::Ready(()) };
        let Some((sleeps, _)) = &mut self.silence else {
            // While something comes nothing has ended, and asking costs a call.
            let comes = self.received.replace(pulse.received) != Some(pulse.received);
            return match watch.handle.poll_leaving(cx, !comes) {
                Poll::Ready(Leaving::Gone) => Poll::Ready(()),
                Poll::Ready(Leaving::Half) => {
                    self.silence = Some((Box::pin(sleep(self.limit)), pulse.sent));
                    self.poll(cx, watch)
                }
                Poll::Pending => Poll::Pending,
            };
        };
        if sleeps.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if !self.goes_on(pulse) {
            return Poll::Ready(());
        }
        self.silence = Some((Box::pin(sleep(self.limit)), pulse.sent));
        self.poll(cx, watch)
    }

    /// Whether the answer has sent something since it was last looked at, or waits to: what a peer does not take is the
    /// affair of another limit.
    fn goes_on(&self, pulse: Pulse) -> bool {
        pulse.waits() || pulse.paced || self.silence.as_ref().is_none_or(|&(_, sent)| sent != pulse.sent)
    }
}
