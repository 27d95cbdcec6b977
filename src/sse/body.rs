//! Event stream of one reader.
//!
//! Invariant: `Pending` is returned only after the waker of the reader was registered with its group, so every event,
//! keep-alive and end wakes it.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::gap::Gap;
use super::replay_cursor::{ReplayCursor, Step};
use super::shared::{Begin, Permit, Start};
use super::state::{Cursor, Read};
use super::wake_task::{Member, Wait};
use crate::body::GracefulClose;
use crate::sse::log::Log;

static COMMENT: &[u8] = b":\n\n";

/// The events of a [`Hub`](super::Hub) for one reader, from [`Hub::subscribe`](super::Hub::subscribe). Frames are
/// shared with other readers; waiting events are merged into one frame of up to 16 KiB.
///
/// Inside a tokio runtime it sends comments to [keep the connection alive](super::HubBuilder::keep_alive).
///
/// Dropping it, polled or not, frees its place for another subscriber.
pub struct EventBody(Option<Box<Seat>>);

struct Seat {
    permit: Permit,
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
        Self(Some(Box::new(Seat { permit, source, gap, ending: Arc::default(), end: None, member: None })))
    }

    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Returns a handle that ends this body; `None` if it has ended.
    pub fn ending(&self) -> Option<GracefulClose> {
        let seat = self.0.as_ref()?;
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

impl Seat {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Self { permit: Permit(shared), source, gap, ending, end, member } = self;
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
        let Some(seat) = &mut self.0 else { return Poll::Ready(None) };
        let frame = match std::task::ready!(seat.poll(cx)) {
            Some(frame) => frame,
            None => {
                let retry = seat.permit.0.config.retry.as_millis();
                self.0 = None;
                return Poll::Ready(Some(Ok(Frame::data(format!("retry: {retry}\n\n").into()))));
            }
        };
        if let Some(member) = &mut seat.member {
            member.had_frame();
        }
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
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
        let Some(seat) = &self.0 else { return f.write_str("EventBody(ended)") };
        let mut body = f.debug_struct("EventBody");
        match &seat.source {
            Source::Ring(cursor) => body.field("behind", &seat.permit.0.head().saturating_sub(cursor.next)),
            Source::ReplayCursor(replay_cursor) => body.field("replay_cursor", replay_cursor),
        };
        body.field("ending", &seat.ending).finish_non_exhaustive()
    }
}
