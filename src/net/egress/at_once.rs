//! The common way: one write in a turn, one call.

use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;

use super::{COPY_MAX, Egress, EgressState};
use crate::buf::origin;
use crate::sys::call::{self, IOV_LIMIT};
use crate::sys::fd::AsFd;

impl Egress {
    /// Sends the first write after a read, or one that is likely the only one of its turn, in one call, if the stream
    /// holds no bytes. `None`: it is another write, or the socket is full.
    #[inline]
    pub(super) fn send_at_once(&self, slices: &[IoSlice<'_>]) -> Option<io::Result<usize>> {
        let offered = slices.iter().map(|slice| slice.len()).sum();
        let is_answer = self.peer_spoke.load(Ordering::Relaxed);
        let is_candidate = (is_answer || self.expects_single.load(Ordering::Relaxed))
            && (1..=COPY_MAX).contains(&offered)
            && slices.len() <= IOV_LIMIT
            && !slices.iter().any(|slice| origin::is_of_file(slice))
            && self.options.pace.is_none();
        if !is_candidate {
            return None;
        }
        let mut state = self.state();
        if !state.is_clear() {
            return None;
        }
        let leaves = state.single_writes.leaves_at_once(is_answer);
        self.expects_single.store(state.single_writes.has_credit(), Ordering::Relaxed);
        if !leaves {
            return None;
        }
        if is_answer {
            // Before the call: what the peer says during it asks for another answer.
            self.peer_spoke.store(false, Ordering::Relaxed);
        }
        match call::send_joined(self.as_fd(), slices, offered) {
            Ok(sent) => {
                self.writer.meter.sent_at_once(sent);
                state.record_bytes(sent, sent);
                self.tune_if_due(&mut state);
                Some(Ok(sent))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if is_answer {
                    self.peer_spoke.store(true, Ordering::Relaxed);
                }
                None
            }
            // Told now: the kernel tells it once.
            Err(e) => Some(Err(self.fail_now(&mut state, e.into()))),
        }
    }
}

impl EgressState {
    /// Returns whether nothing is queued, on its way, refused or failed.
    #[inline]
    fn is_clear(&self) -> bool {
        let has_ended = self.failure.is_some() || self.dead || self.ended || self.shut_down;
        !has_ended && !self.blocked && self.queue.is_empty()
    }
}
