//! Replay from the log for a reader that is behind the ring.
//!
//! The log is read from the id of the reader up to the id before the oldest entry of the ring. The ring may have
//! dropped more entries meanwhile. So the log is read again, until the last id that was read is in the ring.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::room::Room;
use crate::sse::event::{Gap, check_id, finish};
use crate::sse::log::{Encoded, Log, LogFuture, Replay, ReplayError};
use crate::sse::ring::{Begin, HubShared, Start};

pub(super) struct ReplayCursor {
    log: Arc<dyn Log>,
    after: Arc<str>,
    state: CursorState,
    /// Head of the ring at the time when the reader began to wait for its id.
    ahead: Option<u64>,
}

enum CursorState {
    Next,
    /// The log was asked for the events up to this id.
    Asked(LogFuture<'static, Result<Replay, ReplayError>>, Arc<str>, Room),
    /// A page of the log, and the id after which to continue.
    Page(VecDeque<Bytes>, Arc<str>, Room),
}

pub(in crate::sse) enum CursorStep {
    Frame(Bytes),
    Ring(Start),
}

impl ReplayCursor {
    pub(in crate::sse) fn new(log: &Arc<dyn Log>, after: &str) -> Self {
        Self { log: Arc::clone(log), after: after.into(), state: CursorState::Next, ahead: None }
    }

    /// Returns the id of the last event that the reader has got, if it waits for the log.
    pub(in crate::sse) fn place(&self) -> Option<&str> {
        (!matches!(self.state, CursorState::Page(..))).then_some(&self.after)
    }

    pub(in crate::sse) fn begin(&self, shared: &HubShared) -> Begin {
        shared.begin_by(|id, other| self.log.order(id, other), &self.after)
    }

    /// Also returns `Pending` if the log has not started or is not far enough; the caller registers the waker for that.
    /// A frame ends with the event that reaches `most` bytes.
    pub(in crate::sse) fn poll(&mut self, shared: &HubShared, cx: &mut Context<'_>, most: usize) -> Poll<CursorStep> {
        loop {
            match &mut self.state {
                CursorState::Next => match self.begin(shared) {
                    Begin::Ring(start) => return Poll::Ready(CursorStep::Ring(start)),
                    Begin::Later => {
                        // Two hubs on a log differ only by events in flight. If the id has not arrived after as many
                        // events as a queue holds, it is unknown.
                        let head = shared.head();
                        if head - *self.ahead.get_or_insert(head) <= shared.config.queue {
                            return Poll::Pending;
                        }
                        return Poll::Ready(CursorStep::Ring(shared.begin_here(Gap::expired(None))));
                    }
                    Begin::Log(upto) => {
                        let room = Room::for_page();
                        let asked =
                            ask(Arc::clone(&self.log), Arc::clone(&self.after), Arc::clone(&upto), room.bytes());
                        self.state = CursorState::Asked(asked, upto, room);
                    }
                },
                CursorState::Asked(asked, upto, room) => match std::task::ready!(asked.as_mut().poll(cx)) {
                    Ok(replay) => {
                        let (upto, room) = (Arc::clone(upto), std::mem::take(room));
                        self.state = page(shared, replay, upto, room);
                    }
                    Err(error) => {
                        let gap = match error {
                            ReplayError::Unknown => Gap::expired(None),
                            ReplayError::Unreachable(_) => Gap::unreachable(),
                        };
                        return Poll::Ready(CursorStep::Ring(shared.begin_here(gap)));
                    }
                },
                CursorState::Page(frames, after, room) => match take(frames, most) {
                    Some(frame) => {
                        room.set(room.bytes() - frame.len());
                        return Poll::Ready(CursorStep::Frame(frame));
                    }
                    None => {
                        self.after = Arc::clone(after);
                        self.state = CursorState::Next;
                    }
                },
            }
        }
    }
}

fn ask(
    log: Arc<dyn Log>,
    after: Arc<str>,
    upto: Arc<str>,
    bytes: usize,
) -> LogFuture<'static, Result<Replay, ReplayError>> {
    Box::pin(async move { log.replay(&after, &upto, bytes).await })
}

/// Takes the next frame, up to the end of the event that reaches `most` bytes.
fn take(frames: &mut VecDeque<Bytes>, most: usize) -> Option<Bytes> {
    let mut frame = frames.pop_front()?;
    if frame.len() > most {
        let ends = |from: usize| frame[from..].windows(2).position(|end| end == b"\n\n").map(|at| from + at + 2);
        let end = ends(most.saturating_sub(2)).filter(|&end| end < frame.len());
        if let Some(end) = end {
            frames.push_front(frame.split_off(end));
        }
    }
    Some(frame)
}

/// Returns whether `bytes` can consist of complete events, with `last` as the id of the last one.
fn is_page(bytes: &[u8], last: &str) -> bool {
    bytes.ends_with(b"\n\n") && check_id(last).is_ok()
}

fn page(shared: &HubShared, replay: Replay, upto: Arc<str>, mut room: Room) -> CursorState {
    let Replay { events, encoded, more, gap } = replay;
    let mut frames = VecDeque::with_capacity(events.len() + 1);
    if let Some(missed) = gap {
        shared.told_gap();
        frames.push_back(Gap::expired(missed).encode());
    }
    shared.replayed(events.len() as u64);
    let mut last = events.last().map(|(id, _)| Arc::from(id.as_str()));
    // One by one, so that each event is dropped when its frame is made.
    frames.extend(events.into_iter().map(|(id, event)| {
        if event.check_name().is_err() || check_id(&id).is_err() {
            shared.told_gap();
            return Gap::lost(Some(1)).encode();
        }
        let mut text = event.encode(id.len());
        finish(&mut text, &id);
        Bytes::from(text)
    }));
    if let Some(Encoded { bytes, last: id, events }) = encoded {
        if is_page(&bytes, &id) {
            shared.replayed(events);
            frames.push_back(bytes);
            last = Some(id.into());
        } else {
            shared.told_gap();
            frames.push_back(Gap::lost(Some(events)).encode());
        }
    }
    let last = last.filter(|_| more).unwrap_or(upto);
    room.set(frames.iter().map(Bytes::len).sum());
    CursorState::Page(frames, last, room)
}

impl fmt::Debug for ReplayCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayCursor").field("after", &self.after).finish_non_exhaustive()
    }
}
