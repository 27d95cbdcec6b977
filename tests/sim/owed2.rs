//! Bytes that a server owes to a client of HTTP/2, and when it may end a stream or the connection. Times are as in
//! [`owed`](crate::owed).

use h2::Reason;
use hyper::{Response, StatusCode};

use crate::request::Torn;
use crate::session::{Asked, NEVER, Progress, Session};
use crate::world::{IDLE_IN_DRAIN, LATE};

/// Time in which an answer is made, besides that of the service, in milliseconds.
pub(crate) const SLOW: u64 = 50;

/// Bytes of the window of a stream that no SETTINGS change.
const WINDOW: u32 = 65_535;

/// Returns whether a response of a hub names the time to return.
fn is_reader<B>(response: &Response<B>) -> bool {
    response.headers().get("retry-after").is_some_and(|time| time == "2")
}

impl Session {
    fn drained_from(&self) -> u64 {
        self.world.drained_at().map_or(NEVER, |drained| drained + self.line.shortest)
    }

    fn deadline(&self) -> u64 {
        self.drained_from().saturating_add(self.world.terms.deadline)
    }

    /// Returns when the server may cut off what is in progress: at the deadline, or if it is taken too slowly, which may have
    /// begun with an earlier request.
    fn cut_from(&self) -> u64 {
        let stalls = |since: u64| since + 2 * self.line.shortest + self.world.terms.write_stall;
        let held = self.state().held_since.map_or(NEVER, stalls);
        self.deadline().min(held).min(if self.line.is_able { NEVER } else { stalls(self.accepted_at) })
    }

    /// Returns when the server may answer that the body of a request is late.
    fn late_from(&self, asked: &Asked) -> u64 {
        // h2 opens no window of an upload whose bytes came before the client knew that its windows are narrower than by default
        // (`apply_local_settings` has no WINDOW_UPDATE).
        let known = self.began + 2 * self.line.longest + SLOW;
        let is_open = self.world.terms.windows.0 >= WINDOW || !(asked.is_first || asked.began <= known);
        let is_prompt = asked.is_prompt && self.line.is_able && is_open && !self.state().has_given_up;
        match asked.has_body && !is_prompt {
            true => asked.began + 2 * self.line.shortest + self.world.terms.body_progress,
            false => NEVER,
        }
    }

    /// Returns when the server may end the connection without an answer to a request.
    fn closed_from(&self, asked: &Asked) -> u64 {
        let state = self.state();
        let (may_be_refused, goes_from) = (state.may_be_refused, state.goes_from);
        drop(state);
        if may_be_refused || asked.torn != Torn::Never {
            return 0;
        }
        // A preface that has not arrived is not known to be HTTP/2.
        let unknown = self.world.drained_at().filter(|_| asked.is_first).map_or(NEVER, |drained| {
            let closes = drained.max(self.accepted_at) + IDLE_IN_DRAIN;
            let arrives = self.line.is_able && asked.began + self.time_for_all() < closes;
            if arrives { NEVER } else { closes + self.line.shortest }
        });
        goes_from.min(unknown).min(self.cut_from())
    }

    /// Records that a request was not answered, or not to its end.
    pub(crate) fn failed(&self, asked: &Asked, error: &h2::Error) {
        self.note("no answer", asked.tag);
        let (now, reason) = (self.now(), error.reason());
        let is_right = if error.is_reset() && error.is_remote() {
            match reason {
                Some(Reason::INTERNAL_ERROR) => asked.torn != Torn::Never,
                Some(Reason::REFUSED_STREAM) => {
                    self.world.calls.forbid(asked.tag);
                    // Before it knows the limit of the server.
                    let known = self.began + 2 * self.line.longest + SLOW;
                    self.world.terms.streams < 100 && (!self.line.is_steady || asked.began <= known)
                }
                _ => false,
            }
        } else if error.is_go_away() && error.is_remote() {
            self.world.calls.forbid(asked.tag);
            let state = self.state();
            match reason {
                Some(Reason::NO_ERROR) => now >= self.drained_from().min(state.goes_from) || state.may_be_refused,
                Some(Reason::ENHANCE_YOUR_CALM) => state.may_be_refused,
                _ => false,
            }
        } else {
            error.is_io() && self.ended_at() >= self.closed_from(asked) || self.is_answer_of_one(error)
        };
        if !is_right {
            let from = self.closed_from(asked);
            self.fault(format_args!("no answer: {error:?} at {now} ms, not before {from} ms, to {asked:?}"));
        }
    }

    /// Returns whether an answer of HTTP/1 has come: a 408 to a preface of which the end was late.
    fn is_answer_of_one(&self, error: &h2::Error) -> bool {
        let due = self.accepted_at + self.world.terms.head_time + self.line.shortest;
        error.is_library() && !self.state().has_answer && !self.line.is_able && self.now() >= due
    }

    /// Records that a request was not sent.
    pub(crate) fn not_sent(&self, asked: &Asked, error: &h2::Error) {
        self.world.calls.forbid(asked.tag);
        if !self.is_over() {
            self.failed(asked, error);
        }
    }

    /// Records that a request was sent.
    pub(crate) fn sent(&self, asked: &Asked) {
        let drained = self.world.drained_at().map_or(NEVER, |drained| drained.max(self.accepted_at));
        let known = drained.saturating_add(LATE + 2 * self.line.longest + self.time_for_all());
        if self.line.is_able && self.line.is_steady && asked.began > known {
            self.fault(format_args!("no GOAWAY in a drain until {known} ms, before {asked:?}"));
        }
    }

    /// Returns whether the head of an answer is that to the request.
    pub(crate) fn is_right<B>(&self, asked: &Asked, response: &Response<B>, status: u16) -> bool {
        let tag = response.headers().get("x-tag").and_then(|tag| tag.to_str().ok()?.parse().ok());
        let (now, from) = (self.now(), self.late_from(asked));
        match response.status() {
            StatusCode::REQUEST_TIMEOUT if tag.is_none() && now >= from => {
                self.note("408", asked.tag);
                return false;
            }
            // The hub has no place for a reader, as the service has compared.
            StatusCode::SERVICE_UNAVAILABLE if tag == Some(asked.tag) && is_reader(response) => {
                self.note("no place for a reader", asked.tag);
                return false;
            }
            found if found != status || tag != Some(asked.tag) => {
                let head = (found, response.headers());
                self.fault(format_args!("another answer: {head:?}, a 408 not before {from} ms, to {asked:?}"));
                return false;
            }
            _ => {}
        }
        let calls = self.world.calls.of(asked.tag);
        if calls != 1 {
            self.fault(format_args!("answered by {calls} calls of the service: {asked:?}"));
        }
        let mut state = self.state();
        // It has a place.
        (state.may_be_refused, state.has_answer) = (false, true);
        true
    }

    /// Judges the body of an answer, as far as it came.
    pub(crate) fn judge(&self, asked: &Asked, expected: &[u8], body: &[u8], cut: Option<&h2::Error>) {
        self.note("answer", asked.tag);
        let len = body.len();
        if !expected.starts_with(body) {
            self.fault(format_args!("wrong bytes: {len} in place of {} to {asked:?}", expected.len()));
        }
        match cut {
            Some(error) => self.failed(asked, error),
            None if asked.torn == Torn::Always || len < expected.len() => {
                self.fault(format_args!("an incomplete body looks complete: {len} bytes to {asked:?}"));
            }
            None => {}
        }
    }

    /// Records the end of an answer.
    pub(crate) fn answered(&self, asked: &Asked, mut progress: Progress<'_>) {
        let now = self.now();
        progress.is_done = true;
        let mut state = self.state();
        let takes = self.line.time_for(state.begun - asked.done);
        let is_steady = self.line.is_steady && state.held_since.is_none();
        // The answer to an upload may have come before the client had sent all of it, and looked.
        if is_steady && now > asked.sent {
            state.quiet_from = state.quiet_from.max(now.saturating_sub(takes));
        }
        let is_late = now > asked.sent + asked.takes + takes + 4 * self.line.longest + SLOW;
        drop(state);
        if is_steady && is_late && self.world.terms.streams >= 100 {
            self.fault(format_args!("an answer at {now} ms, not within {takes} ms, to {asked:?}"));
        }
    }

    /// Expects that the service has stopped its work on a request.
    pub(crate) fn is_dropped(&self, tag: u64) {
        if self.world.calls.is_open(tag) {
            self.fault(format_args!("the service works on request {tag}, whose client has left"));
        }
    }

    /// Records the end of the connection by the server.
    pub(crate) fn ended(&self, ended: &Result<(), h2::Error>) {
        let at = self.ended_at();
        self.note("connection ended", at);
        let idle = self.idle_from() + self.line.shortest;
        let mut state = self.state();
        state.is_over = true;
        let (may_be_refused, goes_from) = (state.may_be_refused, state.goes_from);
        drop(state);
        let is_cut = {
            let socket = self.io.socket();
            let is_truncated = |error: &h2::Error| error.get_io().is_some_and(|error| error.kind() == EOF);
            socket.is_reset() && !socket.has_ended() || ended.as_ref().is_err_and(is_truncated) && socket.is_sealed()
        };
        let cut_from = self.cut_from();
        // An idle client that is far away is not waited for.
        let from = cut_from.min(idle).min(goes_from).min(if is_cut { NEVER } else { self.drained_from() });
        let is_right = match ended {
            _ if may_be_refused => true,
            Ok(()) => at >= from,
            Err(error) if error.is_io() => at >= from,
            Err(error) => self.is_answer_of_one(error),
        };
        if !is_right {
            self.fault(format_args!("{ended:?} at {at} ms, cut {is_cut}, not before {from} ms"));
        }
    }

    /// Returns when the server ends an idle connection, at the latest.
    pub(crate) fn idle_until(&self) -> u64 {
        let (state, terms) = (self.state(), &self.world.terms);
        let idle = match state.tags.is_empty() {
            true => self.accepted_at + terms.head_time,
            false => state.answered_at + terms.keep_alive,
        };
        self.world.drained_at().map_or(idle, |at| idle.min(at.max(state.answered_at) + IDLE_IN_DRAIN))
    }
}

const EOF: std::io::ErrorKind = std::io::ErrorKind::UnexpectedEof;
