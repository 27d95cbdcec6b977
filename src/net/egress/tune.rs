//! Changing the socket options of a live connection.

use super::super::pace::Grant;
use super::super::profile::Profile;
use super::{Egress, EgressState};
use crate::sys::fd::AsFd;
use crate::sys::tcp;

/// Minimum and maximum number of bytes between measurements of the round trip.
const LOOK_MIN: u64 = 64 << 10;
const LOOK_MAX: u64 = 4 << 20;

impl Egress {
    pub(in crate::net) fn profile(&self) -> Profile {
        self.profile.get()
    }

    /// Applies `profile` to the socket: at once, or with a later flush if it depends on the peer.
    pub(in crate::net) fn set_profile(&self, profile: Profile) {
        let mut state = self.state();
        self.profile.set(profile);
        if profile == Profile::Auto {
            state.look_at = self.writer.meter.bytes_sent().max(LOOK_MIN);
            return;
        }
        state.look_at = u64::MAX;
        profile.apply(self.as_fd());
        state.fitted = profile;
    }

    /// Returns whether the shared rate allows sending now. Otherwise the stream is blocked until it does.
    #[inline]
    pub(super) fn may_send(&self, state: &mut EgressState, bytes: usize) -> bool {
        let pace = self.options.pace.as_ref();
        let grant = pace.map_or(Grant::Now, |pace| pace.may_send(bytes, &self.writer.writable, self.runtime()));
        let may = grant == Grant::Now;
        if grant == Grant::Never {
            self.writer.set_unwatched(true);
        }
        state.blocked |= !may;
        state.paced = !may;
        may
    }

    #[inline]
    pub(super) fn record_bytes(&self, state: &mut EgressState, came: usize, left: usize) {
        state.record_bytes(came, left);
        if let Some(pace) = &self.options.pace {
            pace.spend(left);
        }
    }

    #[inline]
    pub(super) fn tune_if_due(&self, state: &mut EgressState) {
        let sent = self.writer.meter.bytes_sent();
        if sent >= state.look_at {
            self.tune_now(state, sent);
        }
    }

    #[cold]
    fn tune_now(&self, state: &mut EgressState, sent: u64) {
        let Some(info) = tcp::info(self.as_fd()) else {
            // The socket is not TCP: stop measuring.
            state.look_at = u64::MAX;
            return;
        };
        state.look_at = sent + sent.clamp(LOOK_MIN, LOOK_MAX);
        let fitting = Profile::fitting(info.rtt, state.fitted);
        if fitting != state.fitted {
            fitting.apply(self.as_fd());
            state.fitted = fitting;
        }
    }
}
