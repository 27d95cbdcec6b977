//! A reader: its position, and the frames that follow it.
//!
//! Invariant: `Pending` is returned only after the waker of the reader was registered with its group, so every event,
//! keep-alive and end wakes it.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::gap::Gap;
use super::replay_cursor::{ReplayCursor, Step};
use super::shared::{Begin, Permit, Start};
use super::sinks::{self, Attached, Frames, Outcome, Sink};
use super::state::{Cursor, Read};
use super::wake_task::{Member, Refused, Wait};
use crate::body::GracefulClose;
use crate::net::{Outlet, Sent};
use crate::sse::log::Log;

static COMMENT: &[u8] = b":\n\n";

/// Whether the hub writes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    Attached,
    /// It does not. The task is woken as before.
    Waits,
    /// It does not, and the body must be polled now.
    News,
}

pub(super) enum State {
    Ended,
    /// Polled by the task of the connection.
    Polled(Box<Seat>),
    /// Written by the hub.
    Attached(Attached),
}

pub(super) struct Seat {
    permit: Permit,
    /// The connection, with the framing that it needs, while the hub writes to it.
    outlet: Option<(Outlet, bool)>,
    source: Source,
    gap: Option<Bytes>,
    ending: Arc<AtomicBool>,
    /// Position at which the ending stream ends.
    end: Option<u64>,
    member: Option<Member>,
}

enum Source {
    Ring(Cursor),
    ReplayCursor(Box<ReplayCursor>),
}

impl State {
    pub(super) fn new(permit: Permit, log: Option<&Arc<dyn Log>>, last: Option<&str>) -> Self {
        let shared = &permit.0;
        let at = |(cursor, gap): Start| (Source::Ring(cursor), gap.map(Gap::encode));
        let (source, gap) = match log.zip(last) {
            None => at(shared.begin(last)),
            Some((log, last)) => {
                let replay_cursor = ReplayCursor::new(log, last);
                match replay_cursor.begin(shared) {
                    Begin::Ring(start) => at(start),
                    Begin::Log(_) | Begin::Later => (Source::ReplayCursor(Box::new(replay_cursor)), None),
                }
            }
        };
        let ending = Arc::default();
        Self::Polled(Box::new(Seat { permit, outlet: None, source, gap, ending, end: None, member: None }))
    }

    pub(super) fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Attach {
        match mem::replace(self, Self::Ended) {
            Self::Polled(seat) => {
                let (state, attach) = seat.attach(outlet, chunked, cx);
                *self = state;
                attach
            }
            other => {
                *self = other;
                Attach::Waits
            }
        }
    }

    pub(super) fn poll_returned(&mut self) -> Poll<()> {
        let Self::Attached(attached) = self else { return Poll::Ready(()) };
        if !attached.has_returned() {
            return Poll::Pending;
        }
        if let Self::Attached(attached) = mem::replace(self, Self::Ended) {
            *self = returned(attached.detach());
        }
        Poll::Ready(())
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Self::Attached(_) = self
            && let Self::Attached(attached) = mem::replace(self, Self::Ended)
        {
            *self = returned(attached.detach());
        }
        let Self::Polled(seat) = self else { return Poll::Ready(None) };
        let Some(frame) = ready!(seat.poll(cx)) else {
            let retry = seat.permit.0.config.retry.as_millis();
            *self = Self::Ended;
            return Poll::Ready(Some(format!("retry: {retry}\n\n").into()));
        };
        if let Some(member) = &mut seat.member {
            member.had_frame();
        }
        Poll::Ready(Some(frame))
    }

    /// Returns a handle that ends the stream; `None` if it has ended.
    pub(super) fn ending(&self) -> Option<GracefulClose> {
        let Self::Polled(seat) = self else { return None };
        let (ending, hub) = (Arc::clone(&seat.ending), Arc::downgrade(&seat.permit.0));
        Some(GracefulClose::new(move || {
            if !ending.swap(true, Ordering::AcqRel)
                && let Some(hub) = hub.upgrade()
            {
                hub.groups.wake();
            }
        }))
    }
}

/// Returns the state of a body whose seat was given back.
fn returned(sink: Option<Box<dyn Sink>>) -> State {
    let seat = sink.and_then(|sink| (sink as Box<dyn Any>).downcast::<Seat>().ok());
    seat.map_or(State::Ended, |mut seat| {
        seat.outlet = None;
        if let Some(member) = &mut seat.member {
            member.had_frame();
        }
        State::Polled(seat)
    })
}

impl Seat {
    fn attach(mut self: Box<Self>, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> (State, Attach) {
        if !matches!(self.source, Source::Ring(_)) || !outlet.has_room(cx) {
            return (State::Polled(self), Attach::Waits);
        }
        self.outlet = Some((outlet, chunked));
        match Member::attach(self, |seat| seat.member.as_mut(), cx.waker()) {
            Ok(attached) => (State::Attached(attached), Attach::Attached),
            Err(Refused::Waits(sink)) => (returned(Some(sink)), Attach::Waits),
            Err(Refused::News(sink)) => (returned(Some(sink)), Attach::News),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Self { permit: Permit(shared), source, gap, ending, end, member, .. } = self;
        loop {
            let is_ending = || ending.load(Ordering::Acquire) || shared.is_closed();
            let ends = is_ending();
            if let Some(gap) = gap.take() {
                return Poll::Ready(Some(gap));
            }
            let (head, started) = (shared.head(), shared.has_started());
            match source {
                Source::Ring(cursor) => {
                    if ends && cursor.next >= *end.get_or_insert(head) {
                        return Poll::Ready(None);
                    }
                    if cursor.next < head {
                        match shared.read(cursor) {
                            Read::Frame(frame) => return Poll::Ready(Some(frame)),
                            Read::Gap(missed) => return Poll::Ready(Some(missed.encode())),
                            Read::TooSlow => return Poll::Ready(None),
                            Read::Nothing => {}
                        }
                    }
                }
                // The reader reconnects and continues where it was.
                Source::ReplayCursor(_) if ends => return Poll::Ready(None),
                Source::ReplayCursor(replay_cursor) => match replay_cursor.poll(shared, cx) {
                    Poll::Ready(Step::Frame(frame)) => return Poll::Ready(Some(frame)),
                    Poll::Ready(Step::Ring((cursor, missed))) => {
                        *source = Source::Ring(cursor);
                        *gap = missed.map(Gap::encode);
                        continue;
                    }
                    Poll::Pending => {}
                },
            }
            let news = || shared.head() != head || shared.has_started() != started || is_ending() != ends;
            match member.get_or_insert_with(|| shared.groups.join(shared.config.keep_alive)).wait(cx.waker(), news) {
                Wait::Waits => return Poll::Pending,
                Wait::Silent => return Poll::Ready(Some(Bytes::from_static(COMMENT))),
                Wait::News => {}
                Wait::Elsewhere => *member = None,
            }
        }
    }
}

impl Sink for Seat {
    fn send(&mut self, frames: &mut Frames) -> Outcome {
        let Self { permit: Permit(shared), outlet: Some((outlet, chunked)), source: Source::Ring(cursor), .. } = self
        else {
            return Outcome::Returns;
        };
        if self.ending.load(Ordering::Acquire) || shared.is_closed() {
            return Outcome::Returns;
        }
        // Events that are sent during the pass are for the next one, so that no reader delays the others.
        let (head, mut outcome) = (shared.head(), Outcome::Idle);
        while cursor.next < head {
            let sent = match shared.read_shared(cursor, frames) {
                Read::Frame(_) => outlet.send(frames.bytes(*chunked)),
                Read::Gap(missed) if *chunked => outlet.send(&sinks::chunk(&missed.encode())),
                Read::Gap(missed) => outlet.send(&missed.encode()),
                Read::TooSlow => return Outcome::Returns,
                Read::Nothing => break,
            };
            if sent != Sent::All {
                return Outcome::Returns;
            }
            outcome = Outcome::Sent;
        }
        outcome
    }

    fn send_comment(&mut self, frames: &mut Frames) -> Outcome {
        let Some((outlet, chunked)) = &self.outlet else { return Outcome::Returns };
        frames.set(u64::MAX, u64::MAX, Bytes::from_static(COMMENT));
        match outlet.send(frames.bytes(*chunked)) {
            Sent::All => Outcome::Sent,
            Sent::Waits | Sent::Failed => Outcome::Returns,
        }
    }

    fn is_current(&self) -> bool {
        let Source::Ring(cursor) = &self.source else { return false };
        let shared = &self.permit.0;
        cursor.next >= shared.head() && !self.ending.load(Ordering::Acquire) && !shared.is_closed()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Source::Ring(cursor) = &self.source {
            self.permit.0.leave(cursor);
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seat = match self {
            Self::Ended => return f.write_str("EventBody(ended)"),
            Self::Attached(_) => return f.write_str("EventBody(attached)"),
            Self::Polled(seat) => seat,
        };
        let mut body = f.debug_struct("EventBody");
        match &seat.source {
            Source::Ring(cursor) => body.field("behind", &seat.permit.0.head().saturating_sub(cursor.next)),
            Source::ReplayCursor(replay_cursor) => body.field("replay_cursor", replay_cursor),
        };
        body.field("ending", &seat.ending).finish_non_exhaustive()
    }
}
