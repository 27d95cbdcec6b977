//! Event stream of one reader.
//!
//! Invariant: `Pending` is returned only after the waker of the reader was registered with its group, so every event,
//! keep-alive and end wakes it.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

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

/// The events of a [`Hub`](super::Hub) for one reader, from [`Hub::subscribe`](super::Hub::subscribe). Frames are
/// shared with other readers; waiting events are merged into one frame of up to 16 KiB.
///
/// Inside a tokio runtime it sends comments to [keep the connection alive](super::HubBuilder::keep_alive).
///
/// Dropping it, polled or not, frees its place for another subscriber.
pub struct EventBody(Inner);

enum Inner {
    Own(State),
    /// Also known to the server, which may find it inside the bodies of layers.
    Shared(SharedEvents),
}

/// The events of a body that is inside the bodies of layers.
#[derive(Clone)]
pub(crate) struct SharedEvents(Arc<Mutex<Given>>);

struct Given {
    state: State,
    /// Bytes that the layers were given.
    bytes: u64,
}

/// Whether the hub writes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    Attached,
    /// It does not. The task is woken as before.
    Waits,
    /// It does not, and the body must be polled now.
    News,
}

enum State {
    Ended,
    /// Polled by the task of the connection.
    Polled(Box<Seat>),
    /// Written by the hub.
    Attached(Attached),
}

struct Seat {
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

impl EventBody {
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
        let seat = Seat { permit, outlet: None, source, gap, ending, end: None, member: None };
        Self(Inner::Own(State::Polled(Box::new(seat))))
    }

    pub(super) fn none() -> Self {
        Self(Inner::Own(State::Ended))
    }

    /// Returns a second handle, for a server to which the body comes inside of others.
    pub(super) fn share(&mut self) -> SharedEvents {
        let shared = match mem::replace(&mut self.0, Inner::Own(State::Ended)) {
            Inner::Own(state) => SharedEvents(Arc::new(Mutex::new(Given { state, bytes: 0 }))),
            Inner::Shared(shared) => shared,
        };
        self.0 = Inner::Shared(shared.clone());
        shared
    }

    fn with<T>(&self, own: impl FnOnce(&State) -> T) -> T {
        match &self.0 {
            Inner::Own(state) => own(state),
            Inner::Shared(shared) => own(&shared.lock().state),
        }
    }

    /// Lets the hub write the events to `outlet` itself. This task then waits in [`poll_returned`](Self::poll_returned).
    /// `chunked` selects the framing of HTTP/1.1. Called after the body was pending.
    pub(crate) fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Attach {
        match &mut self.0 {
            Inner::Own(state) => state.attach(outlet, chunked, cx),
            Inner::Shared(shared) => shared.lock().state.attach(outlet, chunked, cx),
        }
    }

    /// Ready when the body must be polled again, because the hub does not write it any longer.
    pub(crate) fn poll_returned(&mut self) -> Poll<()> {
        match &mut self.0 {
            Inner::Own(state) => state.poll_returned(),
            Inner::Shared(shared) => shared.lock().state.poll_returned(),
        }
    }

    /// Returns a handle that ends this body; `None` if it has ended.
    pub fn ending(&self) -> Option<GracefulClose> {
        self.with(|state| {
            let State::Polled(seat) = state else { return None };
            let (ending, hub) = (Arc::clone(&seat.ending), Arc::downgrade(&seat.permit.0));
            Some(GracefulClose::new(move || {
                if !ending.swap(true, Ordering::AcqRel)
                    && let Some(hub) = hub.upgrade()
                {
                    hub.groups.wake();
                }
            }))
        })
    }
}

impl SharedEvents {
    fn lock(&self) -> MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`EventBody::attach`], for layers that have passed on `passed` bytes so far. Refuses those that change or keep
    /// bytes, which the first event tells.
    pub(crate) fn attach(&self, passed: u64, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Attach {
        let mut given = self.lock();
        let is_unchanged = passed > 0 && given.bytes == passed;
        if is_unchanged { given.state.attach(outlet, chunked, cx) } else { Attach::Waits }
    }

    /// As [`EventBody::poll_returned`].
    pub(crate) fn poll_returned(&self) -> Poll<()> {
        self.lock().state.poll_returned()
    }
}

impl State {
    fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> Attach {
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

    fn poll_returned(&mut self) -> Poll<()> {
        let Self::Attached(attached) = self else { return Poll::Ready(()) };
        if !attached.has_returned() {
            return Poll::Pending;
        }
        if let Self::Attached(attached) = mem::replace(self, Self::Ended) {
            *self = returned(attached.detach());
        }
        Poll::Ready(())
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let _ = self.poll_returned();
        let Self::Polled(seat) = self else { return Poll::Ready(None) };
        let Some(frame) = std::task::ready!(seat.poll(cx)) else {
            let retry = seat.permit.0.config.retry.as_millis();
            *self = Self::Ended;
            return Poll::Ready(Some(format!("retry: {retry}\n\n").into()));
        };
        if let Some(member) = &mut seat.member {
            member.had_frame();
        }
        Poll::Ready(Some(frame))
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

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.0 {
            Inner::Own(state) => state.poll_frame(cx),
            Inner::Shared(shared) => {
                let mut given = shared.lock();
                let frame = given.state.poll_frame(cx);
                if let Poll::Ready(Some(frame)) = &frame {
                    given.bytes += frame.len() as u64;
                }
                frame
            }
        };
        frame.map(|frame| frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|state| matches!(state, State::Ended))
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

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|state| {
            let seat = match state {
                State::Ended => return f.write_str("EventBody(ended)"),
                State::Attached(_) => return f.write_str("EventBody(attached)"),
                State::Polled(seat) => seat,
            };
            let mut body = f.debug_struct("EventBody");
            match &seat.source {
                Source::Ring(cursor) => body.field("behind", &seat.permit.0.head().saturating_sub(cursor.next)),
                Source::ReplayCursor(replay_cursor) => body.field("replay_cursor", replay_cursor),
            };
            body.field("ending", &seat.ending).finish_non_exhaustive()
        })
    }
}
