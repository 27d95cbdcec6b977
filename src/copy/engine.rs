//! One direction of a copy: what is done next, and what is kept while it waits.
//!
//! ```text
//!  source ──▶ pump: leases ─────────────▶ target      every byte that has left the source
//!         ──▶ pipe ─────────────────────▶             and has not reached the target is
//!         ──▶ job on the blocking pool ─▶             in one of these three
//! ```
//!
//! Invariants:
//! 1. Bytes are in one of the three at a time, so that they stay in order: a way is changed when nothing is in hand.
//! 2. Whatever is in hand is in the engine, not in a future: dropping a future loses none of it.
//! 3. An engine that waits for its source holds neither memory nor pipe.
//! 4. When a poll returns, the positions of files are where the bytes are.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

use super::ends::{self, Handle, Open, Settling, Stream, is_known};
use super::error::{Error, Step};
use super::jobs::{self, Between, Done, is_refusal};
use super::pipes::{self, Pipe};
use super::plan::{Facts, Kind, Path, plan};
use super::pump::{Pump, SMALL, Stroke};
use super::tally::{Report, Tally};
use crate::flow::pace::Pace;
use crate::kernel::call;
use crate::kernel::caps::Capabilities;
use crate::turn::job::Job;

/// Bytes after which other tasks get a chance to run.
const BURST: u64 = 2 << 20;
/// Bytes of a file that one call sends, and that are looked for in the page cache before.
const WINDOW: u64 = 1 << 20;

/// Told how many bytes the target has taken, and how many it will, if that is known.
pub(super) type OnProgress = Box<dyn FnMut(u64, Option<u64>) + Send>;

#[derive(Default)]
pub(super) struct Engine {
    /// Most bytes that are taken from the source.
    limit: Option<u64>,
    pace: Option<Pace>,
    on_progress: Option<OnProgress>,
    since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Bytes that have left the source.
    taken: u64,
    /// How many there are, if the source is a file.
    total: Option<u64>,
    /// The source has no more to give, or no more is wanted.
    ended: bool,
    done: bool,
    pump: Pump,
    pipe: Option<Pipe>,
    job: Option<Job<Done>>,
    from: Side,
    to: Side,
    /// The ends may be others than before.
    renewed: bool,
    /// The source is in the page cache up to here.
    warm: u64,
    /// Something was written since the target was flushed.
    unflushed: bool,
    burst: u64,
    tally: Tally,
}

/// What is known about an end.
#[derive(Debug)]
enum Side {
    Unknown(Settling),
    File(Open),
    Plain(Kind),
}

impl Default for Side {
    fn default() -> Self {
        Self::Unknown(Settling::default())
    }
}

impl Side {
    fn kind(&self) -> Kind {
        match self {
            // Until something is to be known about it.
            Self::Unknown(_) => Kind::Other,
            Self::File(open) => open.kind,
            Self::Plain(kind) => *kind,
        }
    }

    /// The file, if it has positions that the kernel can work at.
    fn file(&self) -> Option<&Open> {
        match self {
            Self::File(open) if open.kind == Kind::File => Some(open),
            _ => None,
        }
    }

    fn advance(&mut self, n: u64) {
        if let Self::File(open) = self {
            open.advance(n);
        }
    }

    fn poll_open<T: 'static>(&mut self, cx: &mut Context<'_>, end: &mut T, writes: bool) -> Poll<io::Result<()>> {
        if let Self::Unknown(settling) = self {
            *self = match Handle::of(end) {
                Some(mut handle) => Self::File(ready!(handle.poll_open(cx, settling, writes))?),
                None => {
                    let stream = if writes { Stream::of(end) } else { Stream::source_of(end) };
                    Self::Plain(stream.map_or(Kind::Other, |stream| stream.kind()))
                }
            };
        }
        Poll::Ready(Ok(()))
    }

    fn tell<T: 'static>(&mut self, end: &mut T) -> io::Result<()> {
        match (self, Handle::of(end)) {
            (Self::File(open), Some(mut handle)) => handle.tell(open),
            _ => Ok(()),
        }
    }
}

/// What failed, and at which end.
struct Failure {
    step: Step,
    at_source: bool,
    error: io::Error,
}

fn at_source(step: Step) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure { step, at_source: true, error }
}

fn at_target(step: Step) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure { step, at_source: false, error }
}

type Polled = Poll<Result<(), Failure>>;

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
    pub(super) fn new(limit: Option<u64>, pace: Option<Pace>, on_progress: Option<OnProgress>) -> Self {
        let mut engine = Self { limit, pace, on_progress, ..Self::default() };
        let caps = Capabilities::get();
        for (path, support) in [
            (Path::Splice, caps.splice()),
            (Path::Sendfile, caps.sendfile()),
            (Path::CopyFileRange, caps.copy_file_range()),
        ] {
            if !support.is_yes() {
                engine.tally.without = engine.tally.without.with(path);
            }
        }
        engine
    }

    pub(super) fn report(&self) -> Report {
        self.tally.report()
    }

    /// Bytes that have left the source and not reached the target. What a job does counts when it has ended.
    pub(super) fn pending(&self) -> u64 {
        self.taken - self.tally.bytes()
    }

    /// The ends may be others from now on.
    pub(super) fn renew(&mut self) {
        self.renewed = true;
    }

    /// Copies on. Once it has ended, it says so again.
    pub(super) fn poll<S, D>(&mut self, cx: &mut Context<'_>, src: &mut S, dst: &mut D) -> Poll<Result<(), Error>>
    where
        S: AsyncRead + Unpin + 'static,
        D: AsyncWrite + Unpin + 'static,
    {
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
            let end = if failure.at_source { ends::name(src) } else { ends::name(dst) };
            Error::new(failure.step, end, self.report(), failure.error)
        }))
    }

    fn advance<S, D>(&mut self, cx: &mut Context<'_>, src: &mut S, dst: &mut D) -> Polled
    where
        S: AsyncRead + Unpin + 'static,
        D: AsyncWrite + Unpin + 'static,
    {
        loop {
            if self.burst >= BURST {
                self.burst = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let step = self.poll_step(cx, src, dst);
            self.tally.waits += u64::from(step.is_pending());
            ready!(step)?;
            if self.ended && self.pending() == 0 {
                ready!(Pin::new(&mut *dst).poll_flush(cx)).map_err(at_target(Step::Flush))?;
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Does the next thing. An end that is asked for more than it has now wakes the task when that has changed.
    fn poll_step<S, D>(&mut self, cx: &mut Context<'_>, src: &mut S, dst: &mut D) -> Polled
    where
        S: AsyncRead + Unpin + 'static,
        D: AsyncWrite + Unpin + 'static,
    {
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
        // What was read goes out before another way is taken, and while nothing more is to come.
        let in_hand = self.pump.pending() > 0;
        if self.ended || room.is_pending() || (in_hand && self.changes(src, dst)) {
            return if self.ended && self.pending() == 0 {
                Poll::Ready(Ok(()))
            } else {
                self.poll_pump(cx, src, dst, 0)
            };
        }
        let room = ready!(room);
        ready!(self.poll_ends(cx, src, dst))?;
        let mut facts = self.facts();
        if plan(&facts) == Path::Splice && !self.finds_pipe() {
            facts.without = facts.without.with(Path::Splice);
        }
        if let (Some(from), Some(to)) = (self.from.file(), self.to.file()) {
            let (from, to) = ((Arc::clone(&from.file), from.position), (Arc::clone(&to.file), to.position));
            let between = Between { from, to, len: room.min(jobs::STEP), facts };
            return Poll::Ready(self.start(move || between.run()));
        }
        match plan(&facts) {
            Path::Sendfile => self.poll_sendfile(cx, dst, room),
            Path::Splice => self.poll_fill(cx, src, room),
            _ => {
                // The ends go on by themselves, from where the copy is.
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

    /// Whether what is pumped now is to be spliced next.
    fn changes<S: 'static, D: 'static>(&mut self, src: &S, dst: &D) -> bool {
        self.pump.is_flooded() && Stream::source_of(src).is_some() && is_known(dst) && self.finds_pipe()
    }

    /// How many bytes may be taken now. None: that was all.
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

    /// Finds out about the ends what the next plan has to know.
    fn poll_ends<S: 'static, D: 'static>(&mut self, cx: &mut Context<'_>, src: &mut S, dst: &mut D) -> Polled {
        if !is_known(dst) {
            (self.from, self.to) = (Side::Plain(Kind::Other), Side::Plain(Kind::Other));
            return Poll::Ready(Ok(()));
        }
        let is_new = matches!(self.from, Side::Unknown(_));
        let from = self.from.poll_open(cx, src, false);
        // To know its position, a file has to be flushed: that waits until its position matters.
        let wants_target = Stream::of(dst).is_some() || Handle::of(src).is_some() || self.pump.is_flooded();
        let to = if wants_target { self.to.poll_open(cx, dst, true) } else { Poll::Ready(Ok(())) };
        ready!(from).map_err(at_source(Step::Open))?;
        ready!(to).map_err(at_target(Step::Open))?;
        if let Some(from) = self.from.file().filter(|from| is_new && from.len > 0) {
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
            // Only the kernel knows whether it has become longer.
            left: from.filter(|from| from.len > 0).map_or(0, |from| from.left().max(1)),
            whole: is_free && starts(from) && starts(to) && to.is_some_and(|to| to.len == 0),
            flood: self.pump.is_flooded(),
            without: self.tally.without,
        }
    }

    /// Whether there is a pipe to be used.
    fn finds_pipe(&mut self) -> bool {
        if self.pipe.is_none() && !self.tally.without.has(Path::Splice) {
            self.pipe = pipes::take();
        }
        self.pipe.is_some()
    }

    fn poll_pump<S, D>(&mut self, cx: &mut Context<'_>, src: &mut S, dst: &mut D, room: u64) -> Polled
    where
        S: AsyncRead + Unpin,
        D: AsyncWrite + Unpin,
    {
        match self.pump.poll(cx, Pin::new(src), Pin::new(dst), room) {
            Poll::Pending => {
                if self.unflushed && self.pump.pending() == 0 {
                    // Somebody may wait for what the target has gathered.
                    let flushed = Pin::new(dst).poll_flush(cx).map_err(at_target(Step::Flush))?;
                    self.unflushed = flushed.is_pending();
                }
                return Poll::Pending;
            }
            Poll::Ready(Ok(Stroke::Read(n))) => {
                self.ended |= n == 0;
                self.take(n as u64);
            }
            Poll::Ready(Ok(Stroke::Wrote(n))) => {
                self.unflushed = true;
                self.give(Path::Pump, n as u64);
            }
            Poll::Ready(Err((Step::Read, e))) => return Poll::Ready(Err(at_source(Step::Read)(e))),
            Poll::Ready(Err((step, e))) => return Poll::Ready(Err(at_target(step)(e))),
        }
        self.tally.syscalls += 1;
        Poll::Ready(Ok(()))
    }

    /// How many bytes of the source can be taken without waiting for a disk; `None`: a job sees to it that some can.
    fn warm(&mut self, room: u64) -> Result<Option<u64>, Failure> {
        let Some(open) = self.from.file() else { return Ok(Some(room)) };
        let (at, len) = (open.position, open.left().min(room).min(WINDOW));
        if len == 0 {
            // Either there is no more, or it was written just now.
            return Ok(Some(room.min(WINDOW)));
        }
        if at >= self.warm {
            if !call::is_resident(open.file.as_fd(), at, len) {
                let file = Arc::clone(&open.file);
                self.start(move || jobs::warm(&file, at, len))?;
                return Ok(None);
            }
            self.warm = at + len;
        }
        Ok(Some(len.min(self.warm - at)))
    }

    fn poll_sendfile<D: 'static>(&mut self, cx: &mut Context<'_>, dst: &D, room: u64) -> Polled {
        let Some(len) = self.warm(room)? else { return Poll::Ready(Ok(())) };
        let (Some(stream), Some(open)) = (Stream::of(dst), self.from.file()) else { return unfit() };
        let mut calls = 0;
        let sent = stream.poll_give(cx, |to| {
            calls += 1;
            call::send_file(to, open.file.as_fd(), open.position, len as usize)
        });
        self.tally.syscalls += calls;
        match ready!(sent) {
            Ok(n) => {
                self.ended |= n == 0;
                self.from.advance(n as u64);
                self.take(n as u64);
                self.give(Path::Sendfile, n as u64);
            }
            Err(e) if is_refusal(&e) => self.tally.refuse(Path::Sendfile),
            Err(e) => return Poll::Ready(Err(at_target(Step::Write)(e))),
        }
        Poll::Ready(Ok(()))
    }

    /// Moves bytes from the source into the pipe, which is empty.
    fn poll_fill<S: 'static>(&mut self, cx: &mut Context<'_>, src: &S, room: u64) -> Polled {
        let Some(len) = self.warm(room)? else { return Poll::Ready(Ok(())) };
        let Some(pipe) = &mut self.pipe else { return unfit() };
        let len = len.min(pipe.capacity() as u64) as usize;
        let mut calls = 0;
        let filled = match (self.from.file(), Stream::source_of(src)) {
            (Some(open), _) => {
                calls = 1;
                Poll::Ready(pipe.fill(open.file.as_fd(), Some(open.position), len))
            }
            (None, Some(stream)) => stream.poll_take(cx, |from| {
                calls += 1;
                pipe.fill(from, None, len)
            }),
            (None, None) => return unfit(),
        };
        self.tally.syscalls += calls;
        match ready!(filled) {
            Ok(n) => {
                self.ended |= n == 0;
                if n < SMALL {
                    self.pump.calm();
                }
                self.from.advance(n as u64);
                self.take(n as u64);
            }
            Err(e) if is_refusal(&e) => self.tally.refuse(Path::Splice),
            Err(e) => return Poll::Ready(Err(at_source(Step::Read)(e))),
        }
        Poll::Ready(Ok(()))
    }

    /// Moves what is in the pipe on.
    fn poll_empty<D: 'static>(&mut self, cx: &mut Context<'_>, dst: &mut D) -> Polled {
        let can_splice = !self.tally.without.has(Path::Splice);
        if can_splice && Handle::of(dst).is_some() {
            ready!(self.to.poll_open(cx, dst, true)).map_err(at_target(Step::Open))?;
        }
        let Some(mut pipe) = self.pipe.take() else { return unfit() };
        if let Some(to) = self.to.file().filter(|_| can_splice) {
            let (file, at) = (Arc::clone(&to.file), to.position);
            return Poll::Ready(self.start(move || jobs::empty(pipe, &file, at)));
        }
        let Some(stream) = Stream::of(dst).filter(|_| can_splice) else {
            let taken = self.pump.take(&mut pipe);
            self.pipe = Some(pipe);
            self.tally.syscalls += 1;
            return Poll::Ready(taken.map_err(at_target(Step::Write)));
        };
        let mut calls = 0;
        let emptied = stream.poll_give(cx, |to| {
            calls += 1;
            pipe.empty(to, None)
        });
        self.pipe = Some(pipe);
        self.tally.syscalls += calls;
        match ready!(emptied) {
            Ok(0) => return Poll::Ready(Err(at_target(Step::Write)(io::ErrorKind::WriteZero.into()))),
            Ok(n) => self.give(Path::Splice, n as u64),
            Err(e) if is_refusal(&e) => self.tally.refuse(Path::Splice),
            Err(e) => return Poll::Ready(Err(at_target(Step::Write)(e))),
        }
        Poll::Ready(Ok(()))
    }

    fn start(&mut self, work: impl FnOnce() -> Done + Send + 'static) -> Result<(), Failure> {
        self.job = Some(Job::start(|| Ok(work())).map_err(at_target(Step::Start))?);
        Ok(())
    }

    /// Takes note of what a job has done.
    fn apply(&mut self, done: Done) -> Result<(), Failure> {
        match done {
            Done::Warmed(up_to) => self.warm = up_to.map_err(at_source(Step::Read))?,
            Done::Moved(moved) => {
                moved.refused.into_iter().for_each(|path| self.tally.refuse(path));
                self.tally.syscalls += moved.calls;
                self.ended |= moved.ended;
                let total = moved.bytes.iter().map(|(_, n)| n).sum();
                self.from.advance(total);
                self.to.advance(total);
                self.take(total);
                moved.bytes.into_iter().for_each(|(path, n)| self.tally.moved(path, n));
                self.give(Path::Pump, 0);
                moved.result.map_err(at_target(Step::Move))?;
            }
            Done::Emptied(pipe, n, result) => {
                self.pipe = Some(pipe);
                self.tally.syscalls += 1;
                self.to.advance(n);
                self.give(Path::Splice, n);
                match result {
                    Err(e) if is_refusal(&e) => self.tally.refuse(Path::Splice),
                    result => result.map_err(at_target(Step::Write))?,
                }
            }
        }
        Ok(())
    }

    /// So many bytes have left the source.
    fn take(&mut self, n: u64) {
        self.taken += n;
        if let Some(pace) = &mut self.pace {
            pace.spend(n);
        }
    }

    /// So many bytes have reached the target.
    fn give(&mut self, path: Path, n: u64) {
        self.burst += n;
        self.tally.moved(path, n);
        if let Some(tell) = &mut self.on_progress {
            tell(self.tally.bytes(), self.total);
        }
    }

    fn tell<S: 'static, D: 'static>(&mut self, src: &mut S, dst: &mut D) -> Result<(), Failure> {
        self.from.tell(src).map_err(at_source(Step::Open))?;
        self.to.tell(dst).map_err(at_target(Step::Open))
    }
}

/// What a plan never asks for.
fn unfit() -> Polled {
    unreachable!("internal: a way that does not fit the ends")
}
