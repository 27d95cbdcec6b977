//! Detects HTTP/1 clients that end their side of the connection, or leave, during a response. If half-closed clients
//! are allowed, or hyper holds a further request, hyper does not read during a response. It would notice that the
//! client has left only at the next write. So the socket is watched here.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::net::{Leaving, Pulse};
use crate::server::state::{ConnState, Protocol};

/// Silence after which a stream of events ends if its client has ended its side. A sending task may pause for less than
/// this.
const EVENTS: Duration = Duration::from_millis(5);

/// Time for which a peer that sends a body is not watched.
const LOOK: Duration = Duration::from_millis(100);

/// Time after which a peer that has ended its side, and whose response goes on, is looked at again. The socket stays
/// ready then, so it does not wake the task if the peer resets the connection.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Watches the peer of a connection. Small, because each connection has one.
#[derive(Debug, Default)]
pub(super) struct Leave {
    /// Bytes received at the last poll.
    received: u64,
    /// When the socket is looked at next, if that is not at once.
    look: Option<Pin<Box<Sleep>>>,
    /// Set once the peer has ended its side.
    silence: Option<Box<Silence>>,
}

/// Time in which a response to a half-closed peer must send something.
#[derive(Debug)]
struct Silence {
    ends: Pin<Box<Sleep>>,
    sent: u64,
    limit: Duration,
}

impl Leave {
    /// Ready when the peer has left, or has ended its side and the response was silent for too long. Returns whether
    /// the kernel may hold bytes for the peer, which a reset would discard.
    pub(in crate::server) fn poll(&mut self, cx: &mut Context<'_>, conn_state: &ConnState) -> Poll<bool> {
        let requests = &conn_state.requests;
        if conn_state.protocol() != Protocol::One || requests.counts().1 == 0 {
            // hyper reads, and detects the end itself.
            (self.silence, self.look) = (None, None);
            return Poll::Pending;
        }
        let limits = &conn_state.limits;
        let Some(pulse) = conn_state.handle.pulse() else { return Poll::Ready(false) };
        let drops_events = requests.has_events() && !limits.half_close_events;
        if self.silence.is_none() {
            // A peer that sends a body has not ended its side, so the system call is not needed. hyper may not read on.
            let comes = std::mem::replace(&mut self.received, pulse.received) != pulse.received;
            if comes && requests.is_arriving() {
                self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
            }
            loop {
                if let Some(look) = &mut self.look {
                    ready!(look.as_mut().poll(cx));
                }
                self.look = None;
                let leaving = ready!(conn_state.handle.poll_leaving(cx));
                conn_state.absence.set();
                let goes_on = match leaving {
                    Leaving::Gone => return Poll::Ready(false),
                    // hyper reads also during a response, unless it holds a further request.
                    Leaving::Unread | Leaving::Half if limits.half_close.is_zero() => true,
                    Leaving::Unread => !drops_events,
                    Leaving::Half => false,
                };
                if !goes_on {
                    break;
                }
                self.look = Some(Box::pin(sleep(LOOK_AGAIN)));
            }
        }
        let limit = if drops_events { EVENTS.min(limits.half_close) } else { limits.half_close };
        // The response may have begun since.
        self.silence.take_if(|silence| silence.limit != limit);
        loop {
            let waits = self
                .silence
                .get_or_insert_with(|| Box::new(Silence { ends: Box::pin(sleep(limit)), sent: pulse.sent, limit }));
            ready!(waits.ends.as_mut().poll(cx));
            if !goes_on(pulse, waits.sent) {
                // A reset would discard what the kernel holds for a slow client, unless the client has reset it.
                match conn_state.handle.unacknowledged() {
                    None => return Poll::Ready(true),
                    Some(0) => return Poll::Ready(false),
                    Some(_) if conn_state.handle.poll_leaving(cx) == Poll::Ready(Leaving::Gone) => {
                        return Poll::Ready(false);
                    }
                    Some(_) => {}
                }
            }
            self.silence = None;
        }
    }
}

/// Returns whether a response has sent bytes or has bytes to send. Another limit applies to peers that read too slowly.
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
