//! A reader: its position, and the frames that follow it.
//!
//! Invariant: `Pending` is returned only after the waker of the reader was registered with its group and its end signal, so
//! every event, keep-alive and end wakes it.

use std::any::Any;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::time::Instant;

use super::replay_cursor::{CursorStep, ReplayCursor};
use crate::body::attach::{Attach, AttachOutcome};
use crate::body::event_body::EventStream;
use crate::body::{EndSignal, GracefulClose};
use crate::counters::{Counter, count};
use crate::net::{Outlet, Sent};
use crate::sse::event::{Deflater, Form, Gap, Gzip, Piece};
use crate::sse::log::Log;
use crate::sse::ring::{Begin, Cursor, Permit, Read, Start};
use crate::sse::wake::sinks;
use crate::sse::wake::{Attached, Frames, Member, Outcome, ReaderSink, Refused, Wait};

/// A line that clients ignore. It stands between two events. No empty line follows it, because some clients take an
/// empty line after an event with an id for an event without data, and fail.
pub(super) static COMMENT: &[u8] = b":\n";

pub(in crate::sse) enum SeatState {
    Ended,
    /// Polled by the task of the connection.
    Polled(Box<Seat>),
    /// Written by the hub.
    Attached(Attached, Arc<EndSignal>),
}

pub(in crate::sse) struct Seat {
    permit: Permit,
    /// The connection, with the framing that it needs, while the hub writes to it.
    outlet: Option<(Outlet, bool)>,
    source: Source,
    /// The compressed stream, if this reader accepts gzip.
    gzip: Option<Gzip>,
    gap: Option<Bytes>,
    ending: Arc<EndSignal>,
    /// When it has reached its age.
    ages: Option<Instant>,
    /// Position at which the stream ends, once it is ending.
    end: Option<u64>,
    member: Option<Member>,
}

enum Source {
    Ring(Cursor),
    ReplayCursor(Box<ReplayCursor>),
}

impl SeatState {
    /// Starts behind the id `last`, with a compressed stream if there is a `deflater`.
    pub(in crate::sse) fn new(
        permit: Permit,
        log: Option<&Arc<dyn Log>>,
        last: Option<&str>,
        deflater: Option<&Arc<Deflater>>,
    ) -> Self {
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
        Self::with(permit, source, gap, deflater)
    }

    /// Starts at a known position.
    pub(in crate::sse) fn at(permit: Permit, (cursor, gap): Start, deflater: Option<&Arc<Deflater>>) -> Self {
        Self::with(permit, Source::Ring(cursor), gap.map(Gap::encode), deflater)
    }

    fn with(permit: Permit, source: Source, gap: Option<Bytes>, deflater: Option<&Arc<Deflater>>) -> Self {
        let (ending, gzip) = (Arc::default(), deflater.map(Gzip::new));
        let ages = permit.0.config.max_age.as_ref().and_then(|ages| Instant::now().checked_add(ages.draw()));
        Self::Polled(Box::new(Seat { permit, outlet: None, source, gzip, gap, ending, ages, end: None, member: None }))
    }

    /// Returns the length of what precedes the first event.
    pub(in crate::sse) fn head_len(&self) -> usize {
        let Self::Polled(seat) = self else { return 0 };
        seat.gzip.as_ref().map_or(0, Gzip::head_len)
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
}

impl EventStream for SeatState {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.detach();
        let Self::Polled(seat) = self else { return Poll::Ready(None) };
        let Some(frame) = ready!(seat.poll(cx)) else {
            let retry = format!("retry: {}\n\n", seat.permit.0.config.retry.draw().as_millis());
            let last = match &mut seat.gzip {
                Some(gzip) => gzip.end(retry.as_bytes()),
                None => retry.into(),
            };
            *self = Self::Ended;
            return Poll::Ready(Some(last));
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
        let ending = Arc::clone(&seat.ending);
        Some(GracefulClose::new(move || ending.set()))
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

/// Returns the bytes to send to this reader for a piece in its form.
fn take(gzip: &mut Option<Gzip>, piece: Piece) -> Bytes {
    if let Some((gzip, sum)) = gzip.as_mut().zip(piece.sum) {
        gzip.add(sum);
    }
    piece.bytes
}

/// Returns the bytes to send to this reader for a text that no other reader gets.
fn own(gzip: &mut Option<Gzip>, text: Bytes) -> Bytes {
    let piece = match gzip {
        Some(gzip) => gzip.deflater().deflate(&text),
        None => Piece::plain(text),
    };
    take(gzip, piece)
}

fn form(gzip: &Option<Gzip>) -> Form {
    if gzip.is_some() { Form::Gzip } else { Form::Plain }
}

/// Returns the length of a frame that may be replayed at once. A page is compressed in pieces, between which the task
/// yields.
fn frame_max(gzip: &Option<Gzip>) -> usize {
    if gzip.is_some() { 16 << 10 } else { usize::MAX }
}

fn comment(gzip: &Option<Gzip>) -> Piece {
    count(Counter::EventComments, 1);
    match gzip {
        Some(gzip) => gzip.deflater().comment(COMMENT),
        None => Piece::plain(Bytes::from_static(COMMENT)),
    }
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

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ages.take_if(|at| *at <= Instant::now()).is_some() {
            count(Counter::ReadersAged, 1);
            self.ending.set();
        }
        let Self { permit: Permit(shared), source, gzip, gap, ending, ages, end, member, .. } = self;
        if let Some(head) = gzip.as_mut().and_then(Gzip::begin) {
            return Poll::Ready(Some(head));
        }
        loop {
            let is_ending = || ending.is_set() || shared.is_ending();
            let ends = is_ending();
            if let Some(gap) = gap.take() {
                return Poll::Ready(Some(own(gzip, gap)));
            }
            let (head, started) = (shared.head(), shared.has_started());
            match source {
                Source::Ring(cursor) => {
                    if ends && cursor.next >= *end.get_or_insert(head) {
                        return Poll::Ready(None);
                    }
                    if cursor.next < head {
                        match shared.read(cursor, gzip.as_ref().map(Gzip::deflater)) {
                            Read::Events(piece) => return Poll::Ready(Some(take(gzip, piece))),
                            Read::Gap(missed) => return Poll::Ready(Some(own(gzip, missed.encode()))),
                            Read::TooSlow => return Poll::Ready(shared.read_kept(cursor).map(|kept| own(gzip, kept))),
                            Read::Nothing => {}
                        }
                    }
                }
                // The reader reconnects and continues where it was.
                Source::ReplayCursor(_) if ends => return Poll::Ready(None),
                Source::ReplayCursor(replay_cursor) => match replay_cursor.poll(shared, cx, frame_max(gzip)) {
                    Poll::Ready(CursorStep::Frame(frame)) => return Poll::Ready(Some(own(gzip, frame))),
                    Poll::Ready(CursorStep::Ring((cursor, missed))) => {
                        *source = Source::Ring(cursor);
                        *gap = missed.map(Gap::encode);
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
                    let comment = comment(gzip);
                    return Poll::Ready(Some(take(gzip, comment)));
                }
                Wait::News => {}
                Wait::Elsewhere => *member = None,
            }
        }
    }
}

impl ReaderSink for Seat {
    fn send(&mut self, frames: &mut Frames) -> Outcome {
        let Self { permit: Permit(shared), source: Source::Ring(cursor), gzip, .. } = self else {
            return Outcome::Returns;
        };
        let Some((outlet, chunked)) = &self.outlet else { return Outcome::Returns };
        if self.ending.is_set() || shared.is_ending() {
            return Outcome::Returns;
        }
        // Events that are sent during the pass are left to the next pass, so that no reader delays the others.
        let (head, mut outcome) = (shared.head(), Outcome::Idle);
        while cursor.next < head {
            let sent = match shared.read_shared(cursor, gzip.as_ref().map(Gzip::deflater), frames) {
                Read::Events(()) => {
                    let frame = frames.of(form(gzip));
                    if let Some((gzip, sum)) = gzip.as_mut().zip(frame.piece.sum) {
                        gzip.add(sum);
                    }
                    outlet.send(frame.bytes(*chunked))
                }
                Read::Gap(missed) => {
                    let gap = own(gzip, missed.encode());
                    outlet.send(&if *chunked { sinks::chunk(&gap) } else { gap })
                }
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
        let (frame, comment) = (frames.of(form(&self.gzip)), comment(&self.gzip));
        frame.set(u64::MAX, u64::MAX, comment.clone());
        take(&mut self.gzip, comment);
        match outlet.send(frame.bytes(*chunked)) {
            Sent::All => Outcome::Sent,
            Sent::Waits | Sent::Failed => Outcome::Returns,
        }
    }

    fn is_current(&self) -> bool {
        let Source::Ring(cursor) = &self.source else { return false };
        let shared = &self.permit.0;
        cursor.next >= shared.head() && !self.ending.is_set() && !shared.is_ending()
    }

    fn is_aged(&self, now: Instant) -> bool {
        self.ages.is_some_and(|at| at <= now)
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
