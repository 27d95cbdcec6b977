//! Detects HTTP/1 clients that end their side of the connection, or leave, during a response. With half-closed clients
//! allowed, hyper does not read during a response, and would notice only on the next write that a client has left. Here
//! the socket is watched meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Sleep, sleep};

use super::conn_state::{ConnState, Protocol};
use crate::net::{Leaving, Pulse};

/// Watches the peer of a connection. Small, because each connection has one.
#[derive(Debug)]
pub(super) struct Leave {
    /// Bytes received at the last poll.
    received: u64,
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
    pub(super) fn new(conn_state: &ConnState) -> Self {
        let received = conn_state.handle.pulse().map_or(0, |pulse| pulse.received);
        Self { received, silence: None }
    }

    /// Ready when the peer has left, or has ended its side and the response was silent for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, conn_state: &ConnState) -> Poll<()> {
        let limit = conn_state.limits.half_close;
        if limit.is_zero() || conn_state.protocol() != Protocol::One || conn_state.requests().1 == 0 {
            // hyper reads, and detects the end itself.
            self.silence = None;
            return Poll::Pending;
        }
        let Some(pulse) = conn_state.handle.pulse() else { return Poll::Ready(()) };
        let silence = || Box::new(Silence { ends: Box::pin(sleep(limit)), sent: pulse.sent });
        if self.silence.is_none() {
            // A peer that sends has not ended its side, and each check is a system call.
            let comes = std::mem::replace(&mut self.received, pulse.received) != pulse.received;
            let leaving = ready!(conn_state.handle.poll_leaving(cx, !comes));
            conn_state.absence.set();
            match leaving {
                Leaving::Gone => return Poll::Ready(()),
                Leaving::Half => self.silence = Some(silence()),
            }
        }
        while let Some(waits) = &mut self.silence {
            ready!(waits.ends.as_mut().poll(cx));
            if !goes_on(pulse, waits.sent) {
                return Poll::Ready(());
            }
            self.silence = Some(silence());
        }
        Poll::Pending
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
