//! Observing a stream through its handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use super::super::stats::{Pulse, Record, StreamStats};
use super::Egress;
use super::leaving::Leaving;
use crate::sys::fd::AsFd;
use crate::sys::socket;
use crate::sys::socket::PeerActivity;
use crate::sys::watch;

impl Egress {
    pub(in crate::net) fn id(&self) -> u64 {
        self.writer.meter.id
    }

    pub(in crate::net) fn stats(&self) -> StreamStats {
        let state = self.state();
        self.writer.meter.stats(state.queue.len(), state.blocked, self.send_strategy())
    }

    pub(in crate::net) fn pulse(&self) -> Pulse {
        let state = self.state();
        Pulse {
            received: self.writer.meter.bytes_received(),
            sent: self.writer.meter.bytes_sent(),
            queued: state.queue.len(),
            blocked: state.blocked,
            paced: state.paced,
        }
    }

    /// Waits until the peer has closed its side. Must not be called while another task waits to read.
    pub(in crate::net) fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<Leaving> {
        loop {
            let Ok(ready) = ready!(self.watched().poll_read_ready(cx)) else { return Poll::Ready(Leaving::Gone) };
            let has_ended = watch::is_read_closed(&ready);
            // A readiness that stays would hide the end.
            let look = || match socket::peer(self.as_fd()) {
                PeerActivity::Gone => (Ok(Some(Leaving::Gone)), false),
                PeerActivity::Ended => (Ok(Some(Leaving::Half)), false),
                PeerActivity::Spoke if has_ended && socket::has_hung_up(self.as_fd()) => {
                    (Ok(Some(Leaving::Gone)), false)
                }
                PeerActivity::Spoke if has_ended => (Ok(Some(Leaving::Unread)), false),
                PeerActivity::Quiet if has_ended => (Ok(Some(Leaving::Half)), false),
                PeerActivity::Spoke => {
                    // The next read does not wait for it.
                    self.set_unread(true);
                    (Ok(None), true)
                }
                PeerActivity::Quiet => (Ok(None), true),
            };
            if let Ok(Some(leaving)) = watch::attempt(ready, look) {
                return Poll::Ready(leaving);
            }
        }
    }

    /// Returns whether the readiness of the socket was cleared although bytes wait.
    #[inline]
    pub(in crate::net) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    pub(in crate::net) fn set_unread(&self, on: bool) {
        self.unread.store(on, Ordering::Relaxed);
    }

    pub(in crate::net) fn record(&self) -> Arc<Record> {
        Arc::clone(self.record.get_or_init(Arc::default))
    }
}
