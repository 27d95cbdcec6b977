//! Detects HTTP/1 clients that end their side of the connection, or leave, during a response. With half-closed clients
//! allowed, hyper does not read during a response, and would notice only on the next write that a client has left. Here
//! the socket is watched meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep};

use super::conn_state::{ConnState, Protocol};
use crate::net::{Leaving, Pulse};

/// Watches the peer of a connection. Small, because each connection has one.
#[derive(Debug, Default)]
pub(super) struct Leave {
    /// Set once the peer has ended its side.
    silence: Option<Box<Silence>>,
}

/// Time in which a response to a half-closed peer must send something.
#[derive(Debug)]
struct Silence {
    ends: Pin<Box<Sleep>>,
    sent: u64,
}

impl Leave {
    /// Ready when the peer has left, or has ended its side and the response was silent for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, conn_state: &ConnState) -> Poll<()> {
        if conn_state.protocol() != Protocol::One || conn_state.requests.counts().1 == 0 {
            // hyper reads, and detects the end itself.
            self.silence = None;
            return Poll::Pending;
        }
        let limits = &conn_state.limits;
        let drops_events = || conn_state.requests.has_events() && !limits.half_close_events;
        if self.silence.is_none() {
            let leaving = ready!(conn_state.handle.poll_leaving(cx));
            conn_state.absence.set();
            match leaving {
                Leaving::Gone => return Poll::Ready(()),
                // hyper reads also during a response, unless it holds a further request.
                _ if limits.half_close.is_zero() => return Poll::Pending,
                _ if drops_events() => return Poll::Ready(()),
                Leaving::Unread => return Poll::Pending,
                Leaving::Half => {}
            }
        }
        if drops_events() {
            return Poll::Ready(());
        }
        let Some(pulse) = conn_state.handle.pulse() else { return Poll::Ready(()) };
        loop {
            let waits = self.silence.get_or_insert_with(|| {
                Box::new(Silence { ends: Box::pin(sleep(limits.half_close)), sent: pulse.sent })
            });
            ready!(waits.ends.as_mut().poll(cx));
            if !goes_on(pulse, waits.sent) {
                return Poll::Ready(());
            }
            self.silence = None;
        }
    }
}

/// Returns whether a response has sent something or waits to. Another limit covers peers that take too little.
fn goes_on(pulse: Pulse, sent: u64) -> bool {
    pulse.waits() || pulse.paced || pulse.sent != sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_on_while_it_sends_or_waits_to_send() {
        let pulse = Pulse { sent: 5, ..Pulse::default() };
        assert!(!goes_on(pulse, 5));
        assert!(goes_on(pulse, 4));
        assert!(goes_on(Pulse { queued: 1, ..pulse }, 5));
        assert!(goes_on(Pulse { paced: true, ..pulse }, 5));
    }
}
