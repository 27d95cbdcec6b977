//! One direction of a copy: selects the next step and keeps the state between polls.
//!
//! ```text
//!  source ──▶ pump: leases ─────────────▶ target      every byte taken from the source
//!         ──▶ pipe ─────────────────────▶             and not written to the target is
//!         ──▶ job on the blocking pool ─▶             in one of these three
//! ```
//!
//! Invariants:
//! 1. Bytes are in only one of the three at a time, so they stay in order: the path changes only when no bytes are
//!    pending.
//! 2. Pending bytes are in the engine, not in a future: dropping a future loses none of them.
//! 3. An engine that waits for its source holds neither memory nor a pipe.
//! 4. When a poll returns, the positions of files match the bytes copied.

mod moves;
mod side;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep};

use self::side::Side;
use super::ends::{End, Open, Source, Target};
use super::error::CopyError;
use super::jobs::{self, Between, Done};
use super::pipes::Pipe;
use super::plan::{CopyPath, Facts, Kind, plan};
use super::pump::Pump;
use super::stats::{CopyReport, Stats};
use crate::counters::token_bucket::TokenBucket;
use crate::fs::Step;
use crate::runtime::blocking::BlockingTask;
use crate::sys::caps::Capabilities;

const BURST: u64 = 2 << 20;
/// Callback with the number of bytes written to the target, and the expected total if known.
pub(super) type OnProgress = Box<dyn FnMut(u64, Option<u64>) + Send>;

#[derive(Default)]
pub(super) struct Engine {
    limit: Option<u64>,
    pace: Option<TokenBucket>,
    on_progress: Option<OnProgress>,
    since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    taken: u64,
    total: Option<u64>,
    ended: bool,
    done: bool,
    pump: Pump,
    pipe: Option<Pipe>,
    job: Option<BlockingTask<Done>>,
    from: Side,
    to: Side,
    renewed: bool,
    /// Offset up to which the source is in the page cache.
    warm: u64,
    unflushed: bool,
    burst: u64,
    stats: Stats,
}

struct CopyFailure {
    step: Step,
    at_source: bool,
    error: io::Error,
}

fn at_source(step: Step) -> impl FnOnce(io::Error) -> CopyFailure {
    move |error| CopyFailure { step, at_source: true, error }
}

fn at_target(step: Step) -> impl FnOnce(io::Error) -> CopyFailure {
    move |error| CopyFailure { step, at_source: false, error }
}

type Polled = Poll<Result<(), CopyFailure>>;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("report", &self.report())
            .field("pending", &self.pending())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(limit: Option<u64>, pace: Option<TokenBucket>, on_progress: Option<OnProgress>) -> Self {
        let mut engine = Self { limit, pace, on_progress, ..Self::default() };
        let caps = Capabilities::get();
        for (path, support) in [
            (CopyPath::Splice, caps.splice()),
            (CopyPath::Sendfile, caps.sendfile()),
            (CopyPath::CopyFileRange, caps.copy_file_range()),
        ] {
            if !support.is_yes() {
                engine.stats.without = engine.stats.without.with(path);
            }
        }
        engine
    }

    pub(super) fn report(&self) -> CopyReport {
        self.stats.report()
    }

    /// Returns the number of bytes taken and not written. A running job does not count yet.
    pub(super) fn pending(&self) -> u64 {
        self.taken - self.stats.bytes()
    }

    pub(super) fn renew(&mut self) {
        self.renewed = true;
    }

    /// Continues the copy. Returns `Ready` again after the end.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        src: &mut dyn Source,
        dst: &mut dyn Target,
    ) -> Poll<Result<(), CopyError>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        let polled = self.advance(cx, src, dst);
        self.pipe.take_if(|pipe| pipe.pending() == 0);
        let result = match (polled, self.tell(src, dst)) {
            (Poll::Pending, Ok(())) => return Poll::Pending,
            (Poll::Ready(Err(failure)), _) | (_, Err(failure)) => Err(failure),
            (Poll::Ready(Ok(())), Ok(())) => Ok(()),
        };
        self.done = result.is_ok();
        Poll::Ready(result.map_err(|failure| {
            let end = if failure.at_source { src.end().name() } else { dst.end().name() };
            CopyError::new(failure.step, end, self.report(), failure.error)
        }))
    }

    fn advance(&mut self, cx: &mut Context<'_>, src: &mut dyn Source, dst: &mut dyn Target) -> Polled {
        loop {
            if self.burst >= BURST {
                self.burst = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let step = self.poll_step(cx, src, dst);
            self.stats.waits += u64::from(step.is_pending());
            ready!(step)?;
            if self.ended && self.pending() == 0 {
                ready!(Pin::new(&mut *dst).poll_flush(cx)).map_err(at_target(Step::Flush))?;
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>, src: &mut dyn Source, dst: &mut dyn Target) -> Polled {
        if let Some(job) = &mut self.job {
            let done = ready!(Pin::new(job).poll(cx));
            self.job = None;
            self.apply(done.map_err(at_target(Step::Start))?)?;
            self.tell(src, dst)?;
            return Poll::Ready(Ok(()));
        }
        if std::mem::take(&mut self.renewed) {
            (self.from, self.to, self.warm) = (Side::default(), Side::default(), 0);
        }
        if self.pump.pending() == 0 && self.pipe.as_ref().is_some_and(|pipe| pipe.pending() > 0) {
            return self.poll_empty(cx, dst);
        }
        let room = self.poll_room(cx);
        self.ended |= room == Poll::Ready(0);
        // Writes pending bytes before the path changes, and while no more bytes will be read.
        let in_hand = self.pump.pending() > 0;
        if self.ended || room.is_pending() || (in_hand && self.changes(&src.end().into_source(), &dst.end())) {
            return if self.ended && self.pending() == 0 {
                Poll::Ready(Ok(()))
            } else {
                self.poll_pump(cx, src, dst, 0)
            };
        }
        let room = ready!(room);
        ready!(self.poll_ends(cx, src, dst))?;
        let mut facts = self.facts();
        if plan(&facts) == CopyPath::Splice && !self.finds_pipe() {
            facts.without = facts.without.with(CopyPath::Splice);
        }
        if let (Some(from), Some(to)) = (self.from.file(), self.to.file()) {
            let (from, to) = ((Arc::clone(&from.file), from.position), (Arc::clone(&to.file), to.position));
            let between = Between { from, to, len: room.min(jobs::STEP), facts };
            return Poll::Ready(self.start(move || between.run()));
        }
        match plan(&facts) {
            CopyPath::Sendfile => self.poll_sendfile(cx, dst, room),
            CopyPath::Splice => self.poll_fill(cx, src, room),
            _ => {
                // The ends continue on their own from the position of the copy.
                self.tell(src, dst)?;
                if let Side::File(_) = self.from {
                    self.from = Side::Plain(Kind::Other);
                }
                if let Side::File(_) = self.to {
                    self.to = Side::default();
                }
                self.poll_pump(cx, src, dst, room)
            }
        }
    }

    fn changes(&mut self, from: &End<'_>, to: &End<'_>) -> bool {
        let can_splice = matches!(from, End::Stream(_)) && !matches!(to, End::Other);
        self.pump.is_flooded() && can_splice && self.finds_pipe()
    }

    /// Returns the number of bytes that may be taken now. 0 means that the limit is reached.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        let left = self.limit.map_or(u64::MAX, |limit| limit - self.taken);
        let Some(pace) = self.pace.as_mut().filter(|_| left > 0 && !self.ended) else { return Poll::Ready(left) };
        let since = *self.since.get_or_insert_with(Instant::now);
        loop {
            match pace.grant(since.elapsed()) {
                Ok(granted) => return Poll::Ready(left.min(granted)),
                Err(wait) => {
                    let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(wait)));
                    sleep.as_mut().reset(Instant::now() + wait);
                    ready!(sleep.as_mut().poll(cx));
                }
            }
        }
    }

    fn poll_ends(&mut self, cx: &mut Context<'_>, src: &mut dyn Source, dst: &mut dyn Target) -> Polled {
        let (mut source, mut target) = (src.end().into_source(), dst.end());
        if let End::Other = target {
            (self.from, self.to) = (Side::Plain(Kind::Other), Side::Plain(Kind::Other));
            return Poll::Ready(Ok(()));
        }
        if let (Side::Plain(Kind::Other), End::Stream(_)) = (&self.from, &source) {
            self.from = Side::default();
        }
        let from = self.from.poll_open(cx, &mut source, false);
        // The position of a file needs a flush, so it is determined only when it matters.
        let is_file = matches!(source, End::File(_)) && !matches!(self.from, Side::Plain(_));
        let wants_target = matches!(target, End::Stream(_)) || is_file || self.changes(&source, &target);
        let to = if wants_target { self.to.poll_open(cx, &mut target, true) } else { Poll::Ready(Ok(())) };
        ready!(from).map_err(|(step, e)| at_source(step)(e))?;
        ready!(to).map_err(|(step, e)| at_target(step)(e))?;
        if let Some(from) = self.from.file().filter(|from| self.total.is_none() && from.len > 0) {
            let total = self.taken + from.left();
            self.total = Some(self.limit.map_or(total, |limit| limit.min(total)));
        }
        Poll::Ready(Ok(()))
    }

    fn facts(&self) -> Facts {
        let (from, to) = (self.from.file(), self.to.file());
        let starts = |side: Option<&Open>| side.is_some_and(|open| open.position == 0);
        let is_free = self.limit.is_none() && self.pace.is_none();
        Facts {
            from: self.from.kind(),
            to: self.to.kind(),
            // Only the kernel knows whether the file has grown.
            left: from.filter(|from| from.len > 0).map_or(0, |from| from.left().max(1)),
            whole: is_free && starts(from) && starts(to) && to.is_some_and(|to| to.len == 0),
            flood: self.pump.is_flooded(),
            without: self.stats.without,
        }
    }

    fn start(&mut self, work: impl FnOnce() -> Done + Send + 'static) -> Result<(), CopyFailure> {
        self.job = Some(BlockingTask::start(|| Ok(work())).map_err(at_target(Step::Start))?);
        Ok(())
    }

    fn take(&mut self, n: u64) {
        self.taken += n;
        if let Some(pace) = &mut self.pace {
            pace.spend(n);
        }
    }

    fn give(&mut self, path: CopyPath, n: u64) {
        self.burst += n;
        self.stats.record_moved(path, n);
        if let Some(tell) = &mut self.on_progress {
            tell(self.stats.bytes(), self.total);
        }
    }

    fn tell(&mut self, src: &mut dyn Source, dst: &mut dyn Target) -> Result<(), CopyFailure> {
        self.from.tell(src.end()).map_err(at_source(Step::Inspect))?;
        self.to.tell(dst.end()).map_err(at_target(Step::Inspect))
    }
}
