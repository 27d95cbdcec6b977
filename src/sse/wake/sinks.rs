//! Readers without a task: the hub sends to their connections itself, to all readers of a runtime in one pass.
//!
//! Such a reader is a [`ReaderSink`] here. A pass asks each for its next frames. A sink returns to the task of its
//! connection if the connection is full or has failed, or if the stream ends. If a sink panics, in a framing, its task
//! goes on with the panic, and the pass with the other sinks.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Waker;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::wait_list::wake;
use crate::buf::pool;
use crate::sse::event::{Form, Piece};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

/// Number of sinks that a pass serves before other tasks may run.
pub(super) const AT_ONCE: usize = 64;

/// How many more sinks a pass serves, of any group, before other tasks may run.
pub(super) struct Turn(usize);

impl Default for Turn {
    fn default() -> Self {
        Self(AT_ONCE)
    }
}

impl Turn {
    /// Lets other tasks run if the turn is over. Called without a lock.
    async fn go_on(&mut self) {
        if self.0 == 0 {
            tokio::task::yield_now().await;
            *self = Self::default();
        }
    }
}

/// A reader whose connection can be written without its task.
pub(in crate::sse) trait ReaderSink: Any + Send {
    /// Sends all new events.
    fn send(&mut self, frames: &mut Frames) -> Outcome;

    /// Sends a comment that keeps the connection alive.
    fn send_comment(&mut self, frames: &mut Frames) -> Outcome;

    /// Returns whether there is nothing to send, so that the sink may wait for the next pass.
    fn is_current(&self) -> bool;

    /// Returns whether it has reached its age at `now`, so that it must return to its task.
    fn is_aged(&self, now: Instant) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sse) enum Outcome {
    /// There was nothing to send.
    Idle,
    Sent,
    /// The sink must return to its task.
    Returns,
}

#[derive(Default)]
struct Sinks {
    places: Vec<SinkPlace>,
    free: Vec<usize>,
    panicked: Vec<Panicked>,
    tick: u64,
}

#[derive(Default)]
struct SinkPlace {
    sink: Option<Box<dyn ReaderSink>>,
    /// Wakes the task of the connection. `None` once the sink waits for its task.
    waker: Option<Waker>,
    /// Tick of the last bytes.
    since: u64,
}

/// A panic of a sink, which its task goes on with: the position of the sink may be wrong.
struct Panicked {
    at: usize,
    payload: Box<dyn Any + Send>,
}

/// The sinks of a group of readers.
#[derive(Default)]
pub(super) struct SinkList {
    sinks: Mutex<Sinks>,
    /// Number of the sinks of all lists of the hub, for statistics.
    all: Arc<AtomicUsize>,
}

impl SinkList {
    /// Creates a list whose sinks count for `all`.
    pub(super) fn new(all: &Arc<AtomicUsize>) -> Self {
        Self { sinks: Mutex::default(), all: Arc::clone(all) }
    }

    /// Adds a sink, unless it has something to send. Sets `waits`, as a waiting reader does.
    pub(in crate::sse) fn enter(
        self: &Arc<Self>,
        sink: Box<dyn ReaderSink>,
        waker: &Waker,
        waits: &AtomicBool,
    ) -> Result<Attached, Box<dyn ReaderSink>> {
        let mut sinks = lock(&self.sinks);
        // Set before the sink looks for news.
        waits.swap(true, Ordering::AcqRel);
        let place = sinks.enter(sink, waker)?;
        self.all.fetch_add(1, Ordering::Relaxed);
        Ok(Attached { list: Arc::clone(self), place: Some(place) })
    }

    /// Sends `what` to all sinks, in steps between which other tasks run. Sets `waits`.
    pub(super) async fn send(&self, what: News, waits: &AtomicBool, turn: &mut Turn) {
        // Waits for a sink that is entering and has not seen the news.
        if lock(&self.sinks).len() == 0 {
            return;
        }
        turn.go_on().await;
        // Set before the sinks look for news.
        waits.swap(true, Ordering::AcqRel);
        let (mut frames, mut next) = (Frames::default(), Some(0));
        while let Some(from) = next {
            let (rest, back) = lock(&self.sinks).send(what, from, turn, &mut frames);
            // Without the lock, because a waker may run any code.
            back.into_iter().for_each(wake);
            frames.notify();
            next = rest;
            if next.is_some() {
                turn.go_on().await;
            }
        }
    }

    /// Advances the tick that is used to find silent readers.
    pub(super) fn tick(&self) {
        lock(&self.sinks).tick += 1;
    }

    /// Returns all sinks to their tasks, because no pass follows.
    pub(super) fn give_back(&self) {
        let back: Vec<Waker> = lock(&self.sinks).places.iter_mut().filter_map(|place| place.waker.take()).collect();
        back.into_iter().for_each(wake);
    }
}

/// A reader that its group writes to, until it is dropped.
#[derive(Debug)]
pub(in crate::sse) struct Attached {
    list: Arc<SinkList>,
    /// `None` after the place was given up.
    place: Option<usize>,
}

impl Attached {
    /// Returns whether the sink has to return to its task.
    pub(in crate::sse) fn has_returned(&self) -> bool {
        self.place.is_none_or(|place| lock(&self.list.sinks).has_returned(place))
    }

    /// Takes the sink back. Goes on with its panic, if it had one.
    pub(in crate::sse) fn detach(mut self) -> Option<Box<dyn ReaderSink>> {
        match self.leave() {
            (sink, None) => sink,
            (_, Some(panicked)) => resume_unwind(panicked.payload),
        }
    }

    fn leave(&mut self) -> (Option<Box<dyn ReaderSink>>, Option<Panicked>) {
        let Some(place) = self.place.take() else { return (None, None) };
        self.list.all.fetch_sub(1, Ordering::Relaxed);
        lock(&self.list.sinks).leave(place)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Dropped without the lock.
        drop(self.leave());
    }
}

impl fmt::Debug for SinkList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkList").finish_non_exhaustive()
    }
}

impl Sinks {
    /// Adds a sink, unless it has something to send.
    fn enter(&mut self, sink: Box<dyn ReaderSink>, waker: &Waker) -> Result<usize, Box<dyn ReaderSink>> {
        if !sink.is_current() {
            return Err(sink);
        }
        let place = SinkPlace { sink: Some(sink), waker: Some(waker.clone()), since: self.tick };
        Ok(match self.free.pop() {
            Some(at) => {
                self.places[at] = place;
                at
            }
            None => {
                self.places.push(place);
                self.places.len() - 1
            }
        })
    }

    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Removes a sink at the request of its task.
    fn leave(&mut self, at: usize) -> (Option<Box<dyn ReaderSink>>, Option<Panicked>) {
        let sink = std::mem::take(&mut self.places[at]).sink;
        let panicked = self.panicked.iter().position(|panicked| panicked.at == at);
        let panicked = panicked.map(|index| self.panicked.swap_remove(index));
        self.free.push(at);
        if self.len() == 0 {
            *self = Self { tick: self.tick, ..Self::default() };
        }
        (sink, panicked)
    }

    /// Returns whether a sink waits for its task.
    fn has_returned(&self, at: usize) -> bool {
        self.places[at].waker.is_none()
    }

    /// Sends `what` to the sinks from `from` on, in this turn. Returns where to continue, and the tasks of the sinks that
    /// return.
    fn send(&mut self, what: News, from: usize, turn: &mut Turn, frames: &mut Frames) -> (Option<usize>, Vec<Waker>) {
        let to = (from + turn.0).min(self.places.len());
        turn.0 -= to.saturating_sub(from);
        let (mut back, tick) = (Vec::new(), self.tick);
        let places = self.places.get_mut(from..to).unwrap_or_default();
        for (at, SinkPlace { sink, waker, since }) in (from..).zip(places) {
            let Some(sink) = sink.as_mut().filter(|_| waker.is_some()) else { continue };
            let outcome = catch_unwind(AssertUnwindSafe(|| match what {
                News::Events => sink.send(frames),
                News::Tick { now, .. } if sink.is_aged(now) => Outcome::Returns,
                News::Tick { silence, .. } if since.saturating_add(silence) <= tick => sink.send_comment(frames),
                News::Tick { .. } => Outcome::Idle,
            }));
            let outcome = outcome.unwrap_or_else(|payload| {
                self.panicked.push(Panicked { at, payload });
                Outcome::Returns
            });
            match outcome {
                Outcome::Idle => {}
                Outcome::Sent => *since = tick,
                Outcome::Returns => back.extend(waker.take()),
            }
        }
        ((to < self.places.len()).then_some(to), back)
    }
}

/// The contents that a pass sends.
#[derive(Clone, Copy, Debug)]
pub(in crate::sse) enum News {
    Events,
    /// Comments to readers that were idle for as many ticks. Readers that have reached their age `now` return.
    Tick {
        silence: u64,
        now: Instant,
    },
}

/// The last frames of a pass, shared by readers of the same form at the same position.
#[derive(Default)]
pub(in crate::sse) struct Frames {
    plain: LastFrame,
    gzip: LastFrame,
    /// By the addresses of the framings.
    framed: Vec<(usize, LastFrame)>,
    /// Notified after each step, if senders wait for readers.
    moved: Option<Arc<Notify>>,
}

#[derive(Default)]
pub(in crate::sse) struct LastFrame {
    range: (u64, u64),
    pub(in crate::sse) piece: Piece,
    chunk: Bytes,
}

impl Frames {
    pub(in crate::sse) fn of(&mut self, form: Form) -> &mut LastFrame {
        match form {
            Form::Plain => &mut self.plain,
            Form::Gzip => &mut self.gzip,
            Form::Framed(framing) => {
                let at = self.framed.iter().position(|(found, _)| *found == framing).unwrap_or_else(|| {
                    self.framed.push((framing, LastFrame::default()));
                    self.framed.len() - 1
                });
                &mut self.framed[at].1
            }
        }
    }

    /// Records that a reader has advanced, for which senders may wait.
    pub(in crate::sse) fn note_advance(&mut self, room: &Arc<Notify>) {
        if self.moved.is_none() {
            self.moved = Some(Arc::clone(room));
        }
    }

    fn notify(&mut self) {
        if let Some(room) = self.moved.take() {
            room.notify_waiters();
        }
    }
}

impl LastFrame {
    /// Returns the entry after this frame, if it begins at the entry `from`.
    pub(in crate::sse) fn starting_at(&self, from: u64) -> Option<u64> {
        (self.range.0 == from && !self.piece.bytes.is_empty()).then_some(self.range.1)
    }

    pub(in crate::sse) fn set(&mut self, from: u64, to: u64, piece: Piece) {
        (self.range, self.piece, self.chunk) = ((from, to), piece, Bytes::new());
    }

    /// Returns the bytes of the frame, with the framing of HTTP/1.1 or without any.
    pub(in crate::sse) fn bytes(&mut self, chunked: bool) -> &Bytes {
        // An empty chunk would end the body.
        if !chunked || self.piece.bytes.is_empty() {
            return &self.piece.bytes;
        }
        if self.chunk.is_empty() {
            self.chunk = chunk(&self.piece.bytes);
        }
        &self.chunk
    }
}

/// Returns `data` as a chunk (RFC 9112 §7.1).
pub(in crate::sse) fn chunk(data: &[u8]) -> Bytes {
    let line = format!("{:X}\r\n", data.len());
    let mut chunk = pool::lease(line.len() + data.len() + 2);
    chunk.extend_from_slice(line.as_bytes());
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    chunk.freeze()
}
