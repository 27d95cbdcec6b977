//! A reader: its position, and the frames that follow it.
//!
//! Invariant: `Pending` is returned only after the waker of the reader was registered with its group and its end signal, so
//! every event, keep-alive and end wakes it.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::coding::{COMMENT, Coding};
use super::replay_cursor::{CursorStep, ReplayCursor};
use crate::body::attach::{Attach, AttachOutcome};
use crate::body::event_body::EventStream;
use crate::body::{EndSignal, GracefulClose};
use crate::counters::{Counter, count};
use crate::net::Outlet;
use crate::sse::event::{EndReason, FramingEnd, Gap};
use crate::sse::log::Log;
use crate::sse::ring::{Begin, Cursor, HubShared, Permit, Read, Start};
use crate::sse::wake::{Attached, Member, ReaderSink, Refused, Wait};

pub(in crate::sse) enum SeatState {
    Ended,
    /// Polled by the task of the connection.
    Polled(Box<Seat>),
    /// Written by the hub.
    Attached(Attached, Arc<EndSignal>),
}

/// The place of a reader that leaves.
pub(in crate::sse) struct Place {
    pub(in crate::sse) hub: Weak<HubShared>,
    /// The id of the last event that it has got.
    pub(in crate::sse) last: String,
    /// Present if its events are compressed: the checksum and the length so far.
    pub(in crate::sse) sums: Option<(u32, u32)>,
    /// The time until it reaches its age.
    pub(in crate::sse) age: Option<Duration>,
}

pub(in crate::sse) struct Seat {
    pub(super) permit: Permit,
    /// The connection, with the framing that it needs, while the hub writes to it.
    pub(super) outlet: Option<(Outlet, bool)>,
    pub(super) source: Source,
    pub(super) coding: Coding,
    /// Boxed, because few readers have one.
    gap: Option<Box<Bytes>>,
    pub(super) ending: Arc<EndSignal>,
    /// When it has reached its age.
    pub(super) ages: Option<Instant>,
    /// Position at which the stream ends, once it is ending.
    end: Option<u64>,
    member: Option<Member>,
}

pub(super) enum Source {
    Ring(Cursor),
    ReplayCursor(Box<ReplayCursor>),
}

impl SeatState {
    /// Starts behind the id `last`.
    pub(in crate::sse) fn new(permit: Permit, log: Option<&Arc<dyn Log>>, last: Option<&str>, coding: Coding) -> Self {
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
        Self::with(permit, source, gap, coding)
    }

    /// Starts at a known position.
    pub(in crate::sse) fn at(permit: Permit, (cursor, gap): Start, coding: Coding) -> Self {
        Self::with(permit, Source::Ring(cursor), gap.map(Gap::encode), coding)
    }

    fn with(permit: Permit, source: Source, gap: Option<Bytes>, coding: Coding) -> Self {
        let ending = Arc::default();
        let ages = permit.0.config.max_age.as_ref().and_then(|ages| Instant::now().checked_add(ages.draw()));
        Self::Polled(Box::new(Seat {
            permit,
            outlet: None,
            source,
            coding,
            gap: gap.map(Box::new),
            ending,
            ages,
            end: None,
            member: None,
        }))
    }

    /// Goes on with a reader of another process, which reaches its age after `age`. It gets a comment first, because it
    /// may have had nothing for long.
    pub(in crate::sse) fn resumed(mut self, age: Option<Duration>) -> Self {
        if let Self::Polled(seat) = &mut self {
            let now = Instant::now();
            seat.ages = seat.ages.map(|at| age.and_then(|age| now.checked_add(age)).map_or(at, |left| left.min(at)));
            if seat.permit.0.config.keep_alive.is_some() {
                seat.gap.get_or_insert(Box::new(Bytes::from_static(COMMENT)));
            }
        }
        self
    }

    /// Returns the length of what precedes the first event.
    pub(in crate::sse) fn head_len(&self) -> usize {
        if let Self::Polled(seat) = self { seat.coding.head_len() } else { 0 }
    }

    /// Takes the stream back from the hub, if the hub writes it.
    pub(in crate::sse) fn detach(&mut self) {
        if let Self::Attached(..) = self
            && let Self::Attached(attached, _) = mem::replace(self, Self::Ended)
        {
            *self = returned(attached.detach());
        }
    }
}

/// The hub writes it from its ring.
impl Attach for SeatState {
    fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> AttachOutcome {
        match mem::replace(self, Self::Ended) {
            Self::Polled(seat) => {
                let (state, outcome) = seat.attach(outlet, chunked, cx);
                *self = state;
                outcome
            }
            other => {
                *self = other;
                AttachOutcome::Waits
            }
        }
    }

    fn poll_returned(&mut self) -> Poll<()> {
        let Self::Attached(attached, ending) = self else { return Poll::Ready(()) };
        if !attached.has_returned() && !ending.is_set() {
            return Poll::Pending;
        }
        self.detach();
        Poll::Ready(())
    }

    fn leave(&mut self) -> Option<Box<dyn Any + Send>> {
        self.detach();
        let Self::Polled(seat) = self else { return None };
        seat.place().map(|place| Box::new(place) as _)
    }
}

impl EventStream for SeatState {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.detach();
        let Self::Polled(seat) = self else { return Poll::Ready(None) };
        let frame = match ready!(seat.poll(cx)) {
            Ok(frame) => frame,
            Err(reason) => {
                let retry = seat.permit.0.config.retry.draw();
                let last = seat.coding.end(FramingEnd { retry, reason });
                *self = Self::Ended;
                return Poll::Ready(filled(last));
            }
        };
        if let Some(member) = &mut seat.member {
            member.had_frame();
        }
        Poll::Ready(Some(frame))
    }

    fn is_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }

    fn ending(&self) -> Option<GracefulClose> {
        let Self::Polled(seat) = self else { return None };
        Some(GracefulClose(Arc::<EndSignal>::clone(&seat.ending)))
    }
}

/// Returns the state of a body whose seat was given back.
fn returned(sink: Option<Box<dyn ReaderSink>>) -> SeatState {
    let seat = sink.and_then(|sink| (sink as Box<dyn Any>).downcast::<Seat>().ok());
    seat.map_or(SeatState::Ended, |mut seat| {
        seat.outlet = None;
        if let Some(member) = &mut seat.member {
            member.had_frame();
        }
        SeatState::Polled(seat)
    })
}

/// Returns the bytes, unless a framing has left all events out.
fn filled(frame: Bytes) -> Option<Bytes> {
    Some(frame).filter(|frame| !frame.is_empty())
}

impl Seat {
    fn attach(mut self: Box<Self>, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> (SeatState, AttachOutcome) {
        if !matches!(self.source, Source::Ring(_)) || !outlet.has_room(cx) {
            return (SeatState::Polled(self), AttachOutcome::Waits);
        }
        self.outlet = Some((outlet, chunked));
        let ending = Arc::clone(&self.ending);
        // Before the group looks whether it is set.
        ending.poll_set(cx);
        match Member::attach(self, |seat| seat.member.as_mut(), cx.waker()) {
            Ok(attached) => (SeatState::Attached(attached, ending), AttachOutcome::Attached),
            Err(Refused::Waits(sink)) => (returned(Some(sink)), AttachOutcome::Waits),
            Err(Refused::News(sink)) => (returned(Some(sink)), AttachOutcome::News),
        }
    }

    /// Returns why a stream ends that was not too slow.
    fn end_reason(&self) -> EndReason {
        if self.permit.0.is_ending() {
            EndReason::Closed
        } else if self.is_aged(Instant::now()) {
            EndReason::Aged
        } else {
            EndReason::Drained
        }
    }

    /// Returns the place of the reader, for another process; `None` if it stays.
    fn place(&self) -> Option<Place> {
        let shared = &self.permit.0;
        if self.gap.is_some() || self.ending.is_set() || shared.is_ending() {
            return None;
        }
        let last = match &self.source {
            Source::Ring(cursor) => shared.last_before(cursor)?,
            Source::ReplayCursor(replay) => replay.place().filter(|_| shared.leaves())?.to_owned(),
        };
        let sums = self.coding.sums()?;
        let age = self.ages.map(|at| at.saturating_duration_since(Instant::now()));
        Some(Place { hub: Arc::downgrade(shared), last, sums, age })
    }

    /// Returns the next frame, or why the stream ends.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, EndReason>> {
        if self.ages.is_some() && !self.ending.is_set() && self.is_aged(Instant::now()) {
            count(Counter::ReadersAged, 1);
            self.ending.set();
        }
        let Self { permit: Permit(shared), source, coding, gap, ending, ages, end, member, .. } = self;
        if let Some(head) = coding.begin() {
            return Poll::Ready(Ok(head));
        }
        loop {
            let is_ending = || ending.is_set() || shared.is_ending();
            let ends = is_ending();
            if let Some(gap) = gap.take() {
                if let Some(frame) = filled(coding.own(*gap)) {
                    return Poll::Ready(Ok(frame));
                }
                continue;
            }
            let (head, started) = (shared.head(), shared.has_started());
            match source {
                Source::Ring(cursor) => {
                    if ends && cursor.next >= *end.get_or_insert(head) {
                        return Poll::Ready(Err(self.end_reason()));
                    }
                    if cursor.next < head {
                        let frame = match shared.read(cursor, coding.coder()) {
                            Read::Events(piece) => Some(coding.take(piece)),
                            Read::Gap(missed) => Some(coding.own(missed.encode())),
                            Read::TooSlow => match shared.read_kept(cursor) {
                                Some(kept) => Some(coding.own(kept)),
                                None => return Poll::Ready(Err(EndReason::TooSlow)),
                            },
                            Read::Nothing => None,
                        };
                        match frame {
                            Some(frame) if frame.is_empty() => continue,
                            Some(frame) => return Poll::Ready(Ok(frame)),
                            None => {}
                        }
                    }
                }
                // The reader reconnects and continues where it was.
                Source::ReplayCursor(_) if ends => return Poll::Ready(Err(self.end_reason())),
                Source::ReplayCursor(replay_cursor) => match replay_cursor.poll(shared, cx, coding.frame_max()) {
                    Poll::Ready(CursorStep::Frame(frame)) => match filled(coding.own(frame)) {
                        Some(frame) => return Poll::Ready(Ok(frame)),
                        None => continue,
                    },
                    Poll::Ready(CursorStep::Ring((cursor, missed))) => {
                        *source = Source::Ring(cursor);
                        *gap = missed.map(|missed| Box::new(missed.encode()));
                        continue;
                    }
                    Poll::Pending => {}
                },
            }
            let news = || shared.head() != head || shared.has_started() != started || is_ending() != ends;
            let join = || {
                let age = ages.map(|at| at.saturating_duration_since(Instant::now()));
                shared.groups.join(shared.config.beat(), age)
            };
            ending.poll_set(cx);
            match member.get_or_insert_with(join).wait(cx.waker(), news) {
                Wait::Waits => return Poll::Pending,
                Wait::Silent => {
                    let comment = coding.comment();
                    if let Some(frame) = filled(coding.take(comment)) {
                        return Poll::Ready(Ok(frame));
                    }
                }
                Wait::News => {}
                Wait::Elsewhere => *member = None,
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Source::Ring(cursor) = &self.source {
            self.permit.0.leave(cursor);
        }
    }
}

impl fmt::Debug for SeatState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seat = match self {
            Self::Ended => return f.write_str("EventBody(ended)"),
            Self::Attached(..) => return f.write_str("EventBody(attached)"),
            Self::Polled(seat) => seat,
        };
        let mut body = f.debug_struct("EventBody");
        match &seat.source {
            Source::Ring(cursor) => body.field("behind", &seat.permit.0.head().saturating_sub(cursor.next)),
            Source::ReplayCursor(replay_cursor) => body.field("replay_cursor", replay_cursor),
        };
        body.field("ending", &seat.ending.is_set()).finish_non_exhaustive()
    }
}
