//! A connection of HTTP/2: what its client has asked for, and when the server counts it as idle. Times are as in
//! [`owed`](crate::owed).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use testkit::sim::{Carrier, Lent};

use crate::line::Line;
use crate::reader::View;
use crate::request::Torn;
use crate::world::{Tags, World};

pub(crate) const NEVER: u64 = u64::MAX;
/// The frames of a request and its answer, besides those of bodies.
const FRAMES: usize = 500;

/// A connection.
pub(crate) struct Session {
    pub(crate) world: Arc<World>,
    pub(crate) tags: Arc<Tags>,
    pub(crate) line: Line,
    pub(crate) link: u64,
    pub(crate) io: Lent<Carrier>,
    /// When the server has accepted it, and when the client began HTTP/2.
    pub(crate) accepted_at: u64,
    pub(crate) began: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) may_be_refused: bool,
    /// Requests in progress.
    pub(crate) open: u32,
    pub(crate) has_answer: bool,
    /// A request was given up. The client of h2 may not send the rest of an upload then, although it has windows.
    pub(crate) has_given_up: bool,
    /// Bytes of all requests and answers that have begun, and of those that have ended in order.
    pub(crate) begun: usize,
    pub(crate) done: usize,
    /// When the server counted the time without a request from, at the earliest and at the server.
    pub(crate) quiet_from: u64,
    /// When the last request ended here.
    pub(crate) answered_at: u64,
    /// When the server may have ended an idle connection while a request was on its way, at the earliest.
    pub(crate) goes_from: u64,
    /// Answers that are not read, and when the first of them was asked for.
    pub(crate) held: u32,
    pub(crate) held_since: Option<u64>,
    pub(crate) tags: Vec<u64>,
    pub(crate) is_over: bool,
}

/// A request as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) tag: u64,
    pub(crate) began: u64,
    /// When the last byte of its body was ready to be sent.
    pub(crate) sent: u64,
    /// Time that the service takes.
    pub(crate) takes: u64,
    pub(crate) torn: Torn,
    pub(crate) has_body: bool,
    /// Whether the body followed at once.
    pub(crate) is_prompt: bool,
    /// Whether the client had no answer on this connection.
    pub(crate) is_first: bool,
    /// Bytes of the requests and answers that had ended before.
    pub(crate) done: usize,
}

/// A request in progress.
pub(crate) struct Progress<'a> {
    session: &'a Session,
    bytes: usize,
    pub(crate) is_done: bool,
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        let now = self.session.now();
        let mut state = self.session.state();
        state.open -= 1;
        state.answered_at = now;
        if self.is_done {
            state.done += self.bytes;
        }
    }
}

/// An answer that is not read for a while.
pub(crate) struct Held<'a>(&'a Session);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state().held -= 1;
    }
}

impl Session {
    pub(crate) fn new(talk: (Arc<World>, Arc<Tags>), line: Line, io: Lent<Carrier>, accepted_at: u64) -> Self {
        let ((world, tags), link) = (talk, io.socket().link());
        let state = State {
            may_be_refused: false,
            open: 0,
            has_answer: false,
            has_given_up: false,
            begun: 0,
            done: 0,
            quiet_from: accepted_at,
            answered_at: accepted_at,
            goes_from: NEVER,
            held: 0,
            held_since: None,
            tags: Vec::new(),
            is_over: false,
        };
        let began = world.net.now();
        Self { world, tags, line, link, io, accepted_at, began, state: Mutex::new(state) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn now(&self) -> u64 {
        self.world.net.now()
    }

    pub(crate) fn fault(&self, what: impl fmt::Display) {
        self.world.fault(self.link, what);
    }

    pub(crate) fn note(&self, what: &str, value: u64) {
        self.world.net.note(self.link, what, value);
    }

    pub(crate) fn set_may_be_refused(&self) {
        self.state().may_be_refused = true;
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Returns whether all requests were answered in order.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.state();
        state.done == state.begun
    }

    pub(crate) fn tags(&self) -> Vec<u64> {
        self.state().tags.clone()
    }

    /// Records that a request is given up.
    pub(crate) fn gives_up(&self) {
        self.state().has_given_up = true;
    }

    /// Returns the time in which all bytes in progress arrive, and those of requests that were given up.
    pub(crate) fn time_for_all(&self) -> u64 {
        let state = self.state();
        self.line.time_for(state.begun - state.done)
    }

    pub(crate) fn view(&self) -> View<'_> {
        let state = self.state();
        View { world: &self.world, line: &self.line, link: self.link, others: state.begun - state.done }
    }

    /// Returns when the end of the server's bytes, or its reset, has arrived.
    pub(crate) fn ended_at(&self) -> u64 {
        self.io.socket().ended_at().unwrap_or(self.now())
    }

    /// Returns when the last bytes have come.
    pub(crate) fn heard_at(&self) -> u64 {
        self.io.socket().heard_at()
    }

    /// Records a request that is sent now, with so many bytes in its body and in that of the answer.
    pub(crate) fn begin(&self, tag: u64, bytes: usize) -> (Asked, Progress<'_>) {
        let (now, idle, bytes) = (self.now(), self.idle_from(), bytes + FRAMES);
        let mut state = self.state();
        let on_its_way = self.line.time_for(state.begun - state.done + FRAMES);
        if state.open > 0 && self.line.is_steady && state.held_since.is_none() {
            // A request in progress here was so at the server, a moment ago.
            state.quiet_from = state.quiet_from.max(now.saturating_sub(on_its_way));
        } else if !self.line.is_able || now + on_its_way >= idle {
            state.goes_from = state.goes_from.min(idle + self.line.shortest);
        }
        state.quiet_from = state.quiet_from.max(now + self.line.shortest);
        state.open += 1;
        state.begun += bytes;
        state.tags.push(tag);
        let asked = Asked {
            tag,
            began: now,
            sent: now,
            takes: 0,
            torn: Torn::Never,
            has_body: false,
            is_prompt: true,
            is_first: !state.has_answer,
            done: state.done,
        };
        (asked, Progress { session: self, bytes, is_done: false })
    }

    /// Records that the answer to a request is not read for a while.
    pub(crate) fn hold(&self, asked: &Asked) -> Held<'_> {
        let mut state = self.state();
        state.held += 1;
        state.held_since.get_or_insert(asked.began);
        Held(self)
    }

    /// Returns when a connection without a request is closed, at the earliest and at the server.
    pub(crate) fn idle_from(&self) -> u64 {
        let (state, terms) = (self.state(), &self.world.terms);
        match state.tags.is_empty() {
            true => self.accepted_at + terms.head_time,
            false => state.quiet_from + terms.keep_alive,
        }
    }
}
