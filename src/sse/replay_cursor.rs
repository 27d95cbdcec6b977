//! What a reader needs from the log before the ring has the rest.
//!
//! The log is asked for what is behind the reader's id, up to the id before the ring's oldest entry. When that was read the
//! ring may have dropped more, so it is looked at again: the seam is where the ring knows the id that was read last.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::event::{check_id, finish};
use super::gap::Gap;
use super::room::Room;
use super::shared::{Begin, Shared};
use super::state::Cursor;
use crate::sse::log::{Log, LogFuture, Replay, ReplayError};

/// A reader that is behind what the ring has.
pub(super) struct ReplayCursor {
    /// The id it has seen last.
    after: Arc<str>,
    state: State,
    /// The ring's head when it first had to wait for what it has seen.
    ahead: Option<u64>,
}

enum State {
    /// The ring or the log is to be asked.
    Next,
    /// The log was asked for what there is up to this id.
    Asked(LogFuture<'static, Result<Replay, ReplayError>>, Arc<str>, Room),
    /// It has answered; the id to go on behind when that was read.
    Page(VecDeque<Bytes>, Arc<str>, Room),
}

/// What comes next.
pub(super) enum Step {
    Frame(Bytes),
    /// The ring has the rest.
    Ring(Cursor, Option<Gap>),
}

impl ReplayCursor {
    pub(super) fn new(after: &str) -> Self {
        Self { after: after.into(), state: State::Next, ahead: None }
    }

    /// `Pending` is returned also where the log has not started or not come so far, of which the waker is not told here.
    pub(super) fn poll(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            match &mut self.state {
                State::Next => match shared.begin(Some(&self.after)) {
                    Begin::Ring(cursor, gap) => return Poll::Ready(Step::Ring(cursor, gap)),
                    Begin::Later => {
                        // Hubs are apart by what is on its way. What does not come by then is from nowhere.
                        let head = shared.head();
                        if head - *self.ahead.get_or_insert(head) <= shared.config.queue {
                            return Poll::Pending;
                        }
                        return Poll::Ready(Step::Ring(shared.begin_here(), Some(Gap::expired(None))));
                    }
                    Begin::Log(upto) => {
                        let Some(log) = &shared.log else { return Poll::Pending };
                        let room = Room::for_page();
                        let asked = ask(Arc::clone(log), Arc::clone(&self.after), Arc::clone(&upto), room.bytes());
                        self.state = State::Asked(asked, upto, room);
                    }
                },
                State::Asked(asked, upto, room) => match std::task::ready!(asked.as_mut().poll(cx)) {
                    Ok(replay) => {
                        let (upto, room) = (Arc::clone(upto), std::mem::take(room));
                        self.state = page(shared, replay, upto, room);
                    }
                    Err(error) => {
                        let gap = match error {
                            ReplayError::Unknown => Gap::expired(None),
                            ReplayError::Unreachable(_) => Gap::unreachable(),
                        };
                        return Poll::Ready(Step::Ring(shared.begin_here(), Some(gap)));
                    }
                },
                State::Page(frames, after, room) => match frames.pop_front() {
                    Some(frame) => {
                        room.set(room.bytes() - frame.len());
                        return Poll::Ready(Step::Frame(frame));
                    }
                    None => {
                        self.after = Arc::clone(after);
                        self.state = State::Next;
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

/// Encodes a page that was asked for up to `upto`.
fn page(shared: &Shared, replay: Replay, upto: Arc<str>, mut room: Room) -> State {
    let Replay { events, more, gap } = replay;
    let mut frames = VecDeque::with_capacity(events.len() + 1);
    if let Some(missed) = gap {
        shared.told_gap();
        frames.push_back(Gap::expired(missed).encode());
    }
    shared.replayed(events.len() as u64);
    let last = events.last().filter(|_| more).map_or(upto, |(id, _)| id.as_str().into());
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
    room.set(frames.iter().map(Bytes::len).sum());
    State::Page(frames, last, room)
}

impl fmt::Debug for ReplayCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayCursor").field("after", &self.after).finish_non_exhaustive()
    }
}
