//! Having the kernel treat a live connection otherwise.

use std::os::fd::AsFd;
use std::sync::Weak;

use super::super::profile::Profile;
use super::{Egress, State};
use crate::sys::tcp;

/// Bytes sent after which a peer's round trip is looked at, at least and at most.
const LOOK_MIN: u64 = 64 << 10;
const LOOK_MAX: u64 = 4 << 20;

impl Egress {
    pub(in crate::net) fn profile(&self) -> Profile {
        self.profile.get()
    }

    /// Has the socket be like `profile`, at once or, if that is for the peer to decide, with one of the next flushes.
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

    /// Whether the rate that it shares allows it to send now. If not it is blocked, and goes on when it does.
    #[inline]
    pub(super) fn may_send(&self, state: &mut State, bytes: usize) -> bool {
        let may = self.options.pace.as_ref().is_none_or(|pace| pace.may_send(self, bytes));
        state.blocked |= !may;
        state.paced = !may;
        may
    }

    /// Notes that so many bytes were written, and so many sent.
    #[inline]
    pub(super) fn moved(&self, state: &mut State, came: usize, left: usize) {
        state.moved(came, left);
        if let Some(pace) = &self.options.pace {
            pace.spend(left);
        }
    }

    pub(in crate::net) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Something was sent: if enough was since the last time, looks how far away the peer is.
    #[inline]
    pub(super) fn look(&self, state: &mut State) {
        let sent = self.writer.meter.bytes_sent();
        if sent >= state.look_at {
            self.look_now(state, sent);
        }
    }

    #[cold]
    fn look_now(&self, state: &mut State, sent: u64) {
        let Some(info) = tcp::info(self.as_fd()) else {
            // Not TCP: never again.
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
