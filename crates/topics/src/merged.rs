//! The events of all topics of a reader, one frame after another.
//!
//! ```text
//!  seat ─frame─▶ events ─┬─ lines ───────────────▶ frames ─▶ the body of the response
//!  seat ─frame─▶ events ─┘  id ─▶ composite id ─▶┘
//! ```
//!
//! Invariants:
//! 1. Every topic that may have news is in `ready`, or wakes the task of the response.
//! 2. The composite id has the position of each topic behind the last event that was passed on.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use serde_json::Value;

use crate::composite::CompositeId;
use crate::events;
use crate::frames::Frames;
use crate::readers::Permit;
use crate::seat::{EndReason, News, Seat};
use crate::source_event::SourceEvent;
use crate::wakes::{Ready, Wakes};

/// The events of all topics of a reader.
pub(crate) struct Merged {
    seats: Vec<Seat>,
    wakes: Arc<Wakes>,
    ready: Ready,
    /// The topic whose turn it is.
    turn: usize,
    id: CompositeId,
    frames: Frames,
    retry: Duration,
    /// Whether all topics were told to end.
    leaves: bool,
    is_ended: bool,
    _permit: Permit,
}

impl Merged {
    /// Begins with an event that has nothing but the id, so that the client has a position before the first event.
    pub(crate) fn new(seats: Vec<Seat>, wakes: Arc<Wakes>, id: CompositeId, retry: Duration, permit: Permit) -> Self {
        let (mut frames, ready) = (Frames::default(), Ready::all(seats.len()));
        frames.push(&[], &id, 0);
        Self { seats, wakes, ready, turn: 0, id, frames, retry, leaves: false, is_ended: false, _permit: permit }
    }

    /// Passes on news of the topic `at`. Returns whether there may be room for more.
    fn step(&mut self, at: usize) -> bool {
        if self.seats[at].rest.is_empty() {
            let (id, seat) = (&self.id, &mut self.seats[at]);
            match seat.poll(self.leaves, || id.position(at)) {
                Poll::Pending => {
                    self.ready.remove(at);
                    return true;
                }
                Poll::Ready(News::Events(events)) => seat.rest = events,
                Poll::Ready(News::Source(position)) => self.place(at, position.as_deref().unwrap_or_default()),
                Poll::Ready(News::End(reason)) => self.end(at, reason),
                Poll::Ready(News::Left) => {}
                Poll::Ready(News::Reconnect) => {
                    self.seats[at].cut();
                    self.leave();
                }
            }
        }
        self.pass_on(at)
    }

    /// Passes on events of the topic `at`. Returns whether all fit.
    fn pass_on(&mut self, at: usize) -> bool {
        let seat = &mut self.seats[at];
        while !seat.rest.is_empty() {
            let mut event = SourceEvent::first(&seat.rest);
            let len = event.len;
            if event.is_comment() {
                seat.rest.advance(len);
                continue;
            }
            if !self.frames.has_room(len + self.id.len()) {
                return false;
            }
            if event.id.is_some_and(|id| self.id.set(at, id).is_err()) {
                self.cut(at);
                return true;
            }
            event.name_gap(seat.name());
            match &event.text {
                Cow::Borrowed(text) => self.frames.push_part(&seat.rest, text, &self.id, at),
                Cow::Owned(text) => self.frames.push(text, &self.id, at),
            }
            seat.rest.advance(len);
        }
        true
    }

    /// Sets the position of a topic that has another source, or none.
    fn place(&mut self, at: usize, position: &str) {
        if self.id.set(at, position).is_err() {
            self.cut(at);
        }
    }

    /// Ends a topic whose ids are too long.
    fn cut(&mut self, at: usize) {
        events::id_too_long(self.seats[at].name());
        self.seats[at].cut();
        self.end(at, EndReason::IdTooLong);
    }

    /// Tells the client that a topic has ended.
    fn end(&mut self, at: usize, reason: EndReason) {
        if reason == EndReason::Removed {
            // If the topic appears again, it begins there.
            self.place(at, "");
        }
        let (topic, reason) = (Value::from(self.seats[at].name()), reason.as_str());
        let text = format!("event: topic-end\ndata: {{\"topic\":{topic},\"reason\":\"{reason}\"}}\n");
        self.frames.push(text.as_bytes(), &self.id, at);
    }

    /// Ends all topics behind the events that were sent before.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.leaves, true) {
            for (at, seat) in self.seats.iter_mut().enumerate() {
                seat.leave();
                self.ready.insert(at);
            }
        }
    }

    /// Gathers what the topics have, one frame of each by turns.
    fn gather(&mut self, cx: &Context<'_>) {
        self.wakes.take(cx, &mut self.ready);
        if self.wakes.is_ending() {
            self.leave();
        }
        let mut has_room = true;
        while has_room && let Some(at) = self.ready.next_from(self.turn) {
            let len = self.frames.len();
            has_room = self.step(at);
            // A topic whose event has found no room is the first in the next frame.
            if has_room || self.frames.len() > len {
                self.turn = (at + 1) % self.seats.len();
            }
        }
        if has_room && self.seats.iter().all(Seat::is_ended) {
            self.is_ended = true;
            self.frames.push_last(&format!("retry: {}\n\n", self.retry.as_millis()));
        }
    }
}

impl Body for Merged {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let me = self.get_mut();
        if !me.frames.has_whole() && !me.is_ended {
            me.gather(cx);
        }
        match me.frames.next() {
            Some(frame) => Poll::Ready(Some(Ok(Frame::data(frame)))),
            None if me.is_ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended && self.frames.is_empty()
    }
}

impl fmt::Debug for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merged")
            .field("topics", &self.seats.len())
            .field("id", &self.id)
            .field("leaves", &self.leaves)
            .finish_non_exhaustive()
    }
}
