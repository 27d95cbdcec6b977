//! Bytes that a server owes to a client, and when it may end a connection. Times are in milliseconds, at the client unless they
//! are said to be at the server.
//!
//! A limit never takes effect early, so that each end has an earliest time, which is exact: the shortest time over the link
//! is added to the earliest time at the server. On a link that is fast enough, most limits cannot take effect at all.

use std::fmt;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout_at;

use crate::client::Talk;
use crate::request::Torn;
use crate::world::{IDLE_IN_DRAIN, LATE};
use testkit::sim::{Body, Ended, Head};

const NEVER: u64 = u64::MAX;

/// A request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) tag: u64,
    /// When its first byte and the last byte of its head were sent.
    pub(crate) began: u64,
    pub(crate) sent: u64,
    /// Length of the head, and what was sent with it.
    pub(crate) bytes: usize,
    /// Whether it has a body, and whether that followed at once.
    pub(crate) has_body: bool,
    pub(crate) is_prompt: bool,
    pub(crate) is_head: bool,
    /// Whether the response ends by an error, before which nothing of it may have been sent.
    pub(crate) torn: Torn,
    /// Whether it was sent behind another request.
    pub(crate) is_behind: bool,
}

impl Talk {
    pub(crate) fn fault(&self, what: impl fmt::Display) {
        self.world.fault(self.wire.io.link(), what);
    }

    fn now(&self) -> u64 {
        self.world.net.now()
    }

    /// Sends a request, or a part of one, in one write. Bytes may be lost if the server has ended the connection.
    pub(crate) async fn ask(&mut self, tag: u64, text: &str) -> Asked {
        self.ask_bytes(tag, text.as_bytes()).await
    }

    pub(crate) async fn ask_bytes(&mut self, tag: u64, bytes: &[u8]) -> Asked {
        let began = self.now();
        let _ = self.wire.send(bytes).await;
        self.asked(tag, began, bytes.len())
    }

    /// Sends bytes past the TLS of the connection.
    pub(crate) async fn ask_raw(&mut self, bytes: &[u8]) -> Asked {
        let began = self.now();
        let _ = self.wire.io.socket_mut().write_all(bytes).await;
        self.asked(0, began, bytes.len())
    }

    fn asked(&self, tag: u64, began: u64, bytes: usize) -> Asked {
        let sent = self.now();
        Asked {
            tag,
            began,
            sent,
            bytes,
            has_body: false,
            is_prompt: true,
            is_head: false,
            torn: Torn::Never,
            is_behind: false,
        }
    }

    /// Returns the time of the end of the server's bytes, or of its reset.
    fn ended_at(&self) -> u64 {
        self.wire.io.ended_at().unwrap_or(self.now())
    }

    /// Returns the time of something that happens at the server `closes` or later, unless all of the request arrives before.
    fn unless_arrived(&self, asked: &Asked, closes: u64) -> u64 {
        match self.line.is_able && asked.sent + self.line.time_for(asked.bytes) < closes {
            true => NEVER,
            false => closes + self.line.shortest,
        }
    }

    /// Returns when the server may answer that the request is late.
    pub(crate) fn late_from(&self, asked: &Asked) -> u64 {
        let (terms, shortest) = (&self.world.terms, self.line.shortest);
        // The first head is limited from connecting, others from their first byte.
        let begins = if self.answered_at.is_none() { self.accepted_at } else { asked.began + shortest };
        let head = self.unless_arrived(asked, begins + terms.head_time);
        match asked.has_body && !(asked.is_prompt && self.line.is_able) {
            true => head.min(asked.began + 2 * shortest + terms.body_progress),
            false => head,
        }
    }

    /// Returns when the drain may cut a response off.
    fn deadline(&self) -> u64 {
        let deadline = |drained| drained + self.world.terms.deadline + self.line.shortest;
        self.world.drained_at().map_or(NEVER, deadline)
    }

    /// Returns when the server may cut off the response to a request: at the deadline, or if it is taken too slowly.
    pub(crate) fn cut_from(&self, asked: &Asked) -> u64 {
        if self.has_left {
            return 0;
        }
        let stalls = asked.began + 2 * self.line.shortest + self.world.terms.write_stall;
        self.deadline().min(if self.line.is_able { NEVER } else { stalls })
    }

    /// Returns when a connection without a request is closed, at the earliest.
    fn idle_from(&self) -> u64 {
        match self.answered_at {
            Some(_) => self.quiet_from + self.world.terms.keep_alive,
            None => self.accepted_at + self.world.terms.head_time,
        }
    }

    /// Returns when a drain closes a connection without a request, at the earliest and at the server.
    pub(crate) fn idle_in_drain(&self) -> u64 {
        self.world.drained_at().map_or(NEVER, |drained| drained.max(self.quiet_from) + IDLE_IN_DRAIN)
    }

    /// Returns when the server may end the connection without an answer to a request.
    fn closed_from(&self, asked: &Asked) -> u64 {
        // Behind an unread body the server may close without an announcement. Requests that were pipelined may be dropped in
        // a drain.
        if self.may_close
            || self.may_be_refused
            || self.has_left
            || asked.torn != Torn::Never
            || (asked.is_behind && self.world.drained_at().is_some())
        {
            return 0;
        }
        let idle = self.idle_from().min(self.idle_in_drain());
        let idle = if idle == NEVER { NEVER } else { self.unless_arrived(asked, idle) };
        idle.min(self.late_from(asked)).min(self.cut_from(asked))
    }

    /// Returns whether the server may have ended the connection, as it has, before a request arrived.
    pub(crate) fn has_closed(&self, asked: &Asked) -> bool {
        self.ended_at() >= self.closed_from(asked)
    }

    /// Reads the head of the answer to a request. `None` if there is another one or none, which is a fault unless the
    /// server may end the connection.
    pub(crate) async fn head_of(&mut self, asked: &Asked, status: u16) -> Option<Head> {
        let head = match self.wire.head().await {
            Ok(head) => head,
            Err(ended) => {
                self.world.net.note(self.wire.io.link(), "no answer", asked.tag);
                let (at, from) = (self.ended_at(), self.closed_from(asked));
                if ended.is_wrong() || at < from {
                    self.fault(format_args!("no answer: {ended:?} at {at} ms, not before {from} ms, to {asked:?}"));
                }
                return None;
            }
        };
        let from = self.late_from(asked);
        match head.status {
            408 if self.may_be_refused || self.may_close || self.now() >= from => self.late_at = Some(self.now()),
            408 => self.fault(format_args!("408, not before {from} ms, to {asked:?}")),
            503 if self.may_be_refused && head.closes() && head.field("retry-after") == Some("1") => {
                self.world.calls.forbid(asked.tag);
            }
            // The hub has no place for a reader.
            503 if head.field("x-tag") == Some(&asked.tag.to_string()) => return Some(head),
            found if found != status || head.field("x-tag") != Some(&asked.tag.to_string()) => {
                self.fault(format_args!("another answer: {head:?} to {asked:?}"));
            }
            _ => {
                let calls = self.world.calls.of(asked.tag);
                if calls != 1 {
                    self.fault(format_args!("answered by {calls} calls of the service: {asked:?}"));
                }
                if self.world.drained_at().is_some_and(|drained| asked.began >= drained) && !head.closes() {
                    self.fault(format_args!("no announcement of the end in a drain: {head:?} to {asked:?}"));
                }
                // It has a place.
                self.may_be_refused = false;
                return Some(head);
            }
        }
        None
    }

    /// Reads the body of an answer. Returns whether it is complete.
    pub(crate) async fn body_of(&mut self, asked: &Asked, head: &Head, expected: &[u8]) -> bool {
        let body = match asked.is_head {
            true => Body { bytes: Vec::new(), cut: None },
            false => self.wire.body(head).await,
        };
        let (now, len) = (self.now(), body.bytes.len());
        self.world.net.note(self.wire.io.link(), "answer", asked.tag);
        // Bytes that the file has no more are zeros if they are copied. In a socket, the kernel puts zeros there to the end of a folio.
        let may_be_zero = if let Torn::From(at) = asked.torn { at } else { len };
        let (kept, rest) = body.bytes.split_at(may_be_zero.min(len));
        let is_right = expected.starts_with(kept) && len <= expected.len();
        let is_right = is_right
            && rest
                .iter()
                .zip(expected.get(kept.len()..).unwrap_or_default())
                .all(|(got, due)| [*due, 0].contains(got));
        if !is_right {
            self.fault(format_args!("wrong bytes: {len} in place of {} to {asked:?}", expected.len()));
        }
        let cut = match body.cut {
            // A reset is not seen, except over TLS.
            None if head.is_unbounded()
                && !self.world.terms.resets
                && !self.wire.io.is_sealed()
                && (asked.torn == Torn::Always || len < expected.len()) =>
            {
                Some(Ended::Finished)
            }
            cut => cut,
        };
        match cut {
            None if (asked.torn == Torn::Always && !asked.is_head) || len < expected.len() => {
                self.fault(format_args!("an incomplete body looks complete: {len} bytes to {asked:?}"));
            }
            None => {}
            Some(ended) => {
                let (at, from) = (self.ended_at(), self.cut_from(asked));
                // Bytes behind the last request, when the socket is closed, are answered by a reset, which may overtake the body.
                let is_overtaken = ended == Ended::Reset
                    && (self.was_last || head.closes() || head.is_unbounded())
                    && (self.sent_behind && !self.line.is_in_one_piece);
                if ended.is_wrong() || (asked.torn == Torn::Never && !is_overtaken && at < from) {
                    self.fault(format_args!("cut, {ended:?}, at {at} ms, not before {from} ms, to {asked:?}"));
                }
                return false;
            }
        }
        self.answered(now, asked);
        true
    }

    /// Records a complete answer, after which the server counts the time without a request.
    pub(crate) fn answered(&mut self, now: u64, asked: &Asked) {
        self.answered_at = Some(now);
        self.quiet_from = asked.began + self.line.shortest;
        if self.line.is_steady {
            self.quiet_from = self.quiet_from.max(self.wire.io.heard_at().saturating_sub(self.line.longest));
        }
    }

    /// Returns when the server closes the idle connection, at the earliest and at the latest.
    pub(crate) fn quiet_until(&self) -> (u64, u64) {
        let latest = self.answered_at.unwrap_or(self.accepted_at) + self.world.terms.keep_alive;
        (self.idle_from() + self.line.shortest, latest)
    }

    /// Expects the end of the server's bytes, not a reset, between two times: the latter at the server. An idle connection
    /// ends at once in a drain; one with a part of a request, which is `asked`, does not. Returns the bytes before the end.
    pub(crate) async fn expect_end(&mut self, (earliest, latest): (u64, u64), asked: Option<&Asked>) -> Vec<u8> {
        let (bytes, ended) = self.wire.end().await;
        let now = self.ended_at();
        self.world.net.note(self.wire.io.link(), "ended", now);
        let (mut earliest, mut latest) = (earliest, latest);
        match asked {
            Some(asked) => earliest = earliest.min(self.closed_from(asked)),
            None => {
                let idle = self.idle_in_drain();
                earliest = earliest.min(idle.saturating_add(self.line.shortest)).min(self.deadline());
                let last = self.answered_at.unwrap_or(0);
                latest = self.world.drained_at().map_or(latest, |at| latest.min(at.max(last) + IDLE_IN_DRAIN));
            }
        }
        if self.may_close || self.may_be_refused {
            earliest = 0;
        }
        let is_late = self.line.is_able && now > latest + LATE + 2 * self.line.longest;
        // Bytes that arrive after the last response, when the socket is closed, are answered by a reset. So is a long body
        // that is still sent half a minute after the response.
        // The client's last message of a handshake may not have arrived.
        let is_unheard = self.wire.io.is_sealed() && self.answered_at.is_none() && !self.line.is_steady;
        // A socket of the kernel does not tell a reset for a response that is taken too slowly, of which it has the rest.
        let stalls = self.quiet_from + self.line.shortest + self.world.terms.write_stall;
        let is_slow = !self.world.terms.resets && !self.line.is_able && now >= stalls;
        let may_be_reset = now >= self.deadline()
            || is_slow
            || is_unheard
            || self.may_be_refused
            || self.has_left_in_disorder
            || (self.sent_behind && !self.line.is_in_one_piece)
            || (self.may_close && !self.line.is_steady);
        let is_cut = matches!(ended, Ended::Reset | Ended::Truncated);
        if ended.is_wrong() || (is_cut && !may_be_reset) || now < earliest || is_late {
            self.fault(format_args!("{ended:?} at {now} ms, not the end from {earliest} to {latest} ms"));
        }
        bytes
    }

    /// Expects a reset of a request, between two times.
    pub(crate) async fn expect_reset(&mut self, asked: &Asked, (earliest, latest): (u64, u64), why: &str) {
        let _ = timeout_at(self.world.net.at(latest), self.wire.io.ended()).await;
        let (is_reset, now) = (self.wire.io.is_reset(), self.ended_at());
        let earliest = earliest.min(self.closed_from(asked));
        // In order only if it had not begun.
        let looks_reset = is_reset || (self.wire.io.has_ended() && !self.world.terms.resets);
        let is_right = looks_reset || (self.wire.io.has_ended() && self.closed_from(asked) <= now);
        if !is_right || now < earliest {
            let how = if is_reset { "reset" } else { "not reset" };
            self.fault(format_args!("{why}: {how} at {now} ms, not from {earliest} to {latest} ms: {asked:?}"));
        }
    }

    /// Ends the client's bytes. Over TLS, which has an end of its own, the client may say one end without the other.
    pub(crate) async fn end_my_side(&mut self) {
        self.has_left = self.wire.io.is_sealed();
        let how = if self.has_left { self.dice.in_range(0..=2) } else { 0 };
        self.has_left_in_disorder = how == 1;
        let _ = match how {
            0 => self.wire.io.shutdown().await,
            1 => self.wire.io.socket_mut().shutdown().await,
            _ => {
                let notice = self.wire.io.seal(&[]);
                self.wire.io.socket_mut().write_all(&notice).await
            }
        };
    }
}
