//! Steps of the engine. Each moves bytes, waits, or starts a job for which the engine waits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::{CopyFailure, Engine, Polled, at_source, at_target};
use crate::copy::ends::{End, Source, Target};
use crate::copy::jobs::{self, Done, is_refusal};
use crate::copy::pipes;
use crate::copy::plan::CopyPath;
use crate::copy::pump::{SMALL, Stroke};
use crate::fs::Step;
use crate::sys::call;
use crate::sys::fd::AsFd;
use crate::sys::page_cache;

/// Number of bytes of a file that one call sends after checking that they are in the page cache.
const WINDOW: u64 = 1 << 20;

impl Engine {
    pub(super) fn finds_pipe(&mut self) -> bool {
        if self.pipe.is_none() && !self.stats.without.has(CopyPath::Splice) {
            self.pipe = pipes::take();
        }
        self.pipe.is_some()
    }

    pub(super) fn poll_pump(
        &mut self,
        cx: &mut Context<'_>,
        src: &mut dyn Source,
        dst: &mut dyn Target,
        room: u64,
    ) -> Polled {
        // Most polls of a relay find no bytes and should not lease memory.
        let idle = self.pump.pending() == 0 && matches!(src.end(), End::Stream(stream) if !stream.may_have(cx));
        let stroke = if idle { Poll::Pending } else { self.pump.poll(cx, src, dst, room) };
        match stroke {
            Poll::Pending => {
                if self.unflushed && self.pump.pending() == 0 {
                    // The peer may wait for bytes that the target has buffered.
                    let flushed = Pin::new(dst).poll_flush(cx).map_err(at_target(Step::Flush))?;
                    self.unflushed = flushed.is_pending();
                }
                return Poll::Pending;
            }
            Poll::Ready(Ok(Stroke::Read(n))) => {
                self.ended |= n == 0;
                self.take(n as u64);
                if n > 0 && !self.pump.is_flooded() {
                    self.stats.syscalls += 1;
                    let passed = self.poll_pump(cx, src, dst, 0);
                    return if passed.is_pending() { Poll::Ready(Ok(())) } else { passed };
                }
            }
            Poll::Ready(Ok(Stroke::Wrote(n))) => {
                self.unflushed = true;
                self.give(CopyPath::Pump, n as u64);
            }
            Poll::Ready(Err((Step::Read, e))) => return Poll::Ready(Err(at_source(Step::Read)(e))),
            Poll::Ready(Err((step, e))) => return Poll::Ready(Err(at_target(step)(e))),
        }
        self.stats.syscalls += 1;
        Poll::Ready(Ok(()))
    }

    /// Returns how many bytes can be taken without blocking on the disk; `None` if a job loads some first.
    fn warm(&mut self, room: u64) -> Result<Option<u64>, CopyFailure> {
        let Some(open) = self.from.file() else { return Ok(Some(room)) };
        let (at, len) = (open.position, open.left().min(room).min(WINDOW));
        if len == 0 {
            // Either the file has ended, or it was extended just now.
            return Ok(Some(room.min(WINDOW)));
        }
        if at >= self.warm {
            if !page_cache::is_resident(open.file.as_fd(), at, len) {
                let file = Arc::clone(&open.file);
                self.start(move || jobs::warm(&file, at, len))?;
                return Ok(None);
            }
            self.warm = at + len;
        }
        Ok(Some(len.min(self.warm - at)))
    }

    pub(super) fn poll_sendfile(&mut self, cx: &mut Context<'_>, dst: &mut dyn Target, room: u64) -> Polled {
        let Some(len) = self.warm(room)? else { return Poll::Ready(Ok(())) };
        let (End::Stream(stream), Some(open)) = (dst.end(), self.from.file()) else { return unfit() };
        let mut calls = 0;
        let sent = stream.poll_give(cx, |to| {
            calls += 1;
            call::send_file(to, open.file.as_fd(), open.position, len as usize)
        });
        self.stats.syscalls += calls;
        match ready!(sent) {
            Ok(n) => {
                self.ended |= n == 0;
                self.from.advance(n as u64);
                self.take(n as u64);
                self.give(CopyPath::Sendfile, n as u64);
            }
            Err(e) if is_refusal(&e) => self.stats.refuse(CopyPath::Sendfile),
            Err(e) => return Poll::Ready(Err(at_target(Step::Write)(e))),
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, src: &mut dyn Source, room: u64) -> Polled {
        let Some(len) = self.warm(room)? else { return Poll::Ready(Ok(())) };
        let Some(pipe) = &mut self.pipe else { return unfit() };
        let len = len.min(pipe.capacity() as u64) as usize;
        let mut calls = 0;
        let filled = match (self.from.file(), src.end().into_source()) {
            (Some(open), _) => {
                calls = 1;
                Poll::Ready(pipe.fill(open.file.as_fd(), Some(open.position), len))
            }
            (None, End::Stream(stream)) => stream.poll_take(cx, |from| {
                calls += 1;
                pipe.fill(from, None, len)
            }),
            _ => return unfit(),
        };
        self.stats.syscalls += calls;
        match ready!(filled) {
            Ok(n) => {
                self.ended |= n == 0;
                if n < SMALL {
                    self.pump.calm();
                }
                self.from.advance(n as u64);
                self.take(n as u64);
            }
            Err(e) if is_refusal(&e) => self.stats.refuse(CopyPath::Splice),
            Err(e) => return Poll::Ready(Err(at_source(Step::Read)(e))),
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_empty(&mut self, cx: &mut Context<'_>, dst: &mut dyn Target) -> Polled {
        let mut end = if self.stats.without.has(CopyPath::Splice) { End::Other } else { dst.end() };
        if let End::File(_) = end {
            ready!(self.to.poll_open(cx, &mut end, true)).map_err(|(step, e)| at_target(step)(e))?;
        }
        let Some(mut pipe) = self.pipe.take() else { return unfit() };
        if let (End::File(_), Some(to)) = (&end, self.to.file()) {
            let (file, at) = (Arc::clone(&to.file), to.position);
            return Poll::Ready(self.start(move || jobs::empty(pipe, &file, at)));
        }
        let End::Stream(stream) = end else {
            let taken = self.pump.take(&mut pipe);
            self.pipe = Some(pipe);
            self.stats.syscalls += 1;
            return Poll::Ready(taken.map_err(at_target(Step::Write)));
        };
        let mut calls = 0;
        let emptied = stream.poll_give(cx, |to| {
            calls += 1;
            pipe.empty(to, None)
        });
        self.pipe = Some(pipe);
        self.stats.syscalls += calls;
        match ready!(emptied) {
            Ok(0) => return Poll::Ready(Err(at_target(Step::Write)(io::ErrorKind::WriteZero.into()))),
            Ok(n) => self.give(CopyPath::Splice, n as u64),
            Err(e) if is_refusal(&e) => self.stats.refuse(CopyPath::Splice),
            Err(e) => return Poll::Ready(Err(at_target(Step::Write)(e))),
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn apply(&mut self, done: Done) -> Result<(), CopyFailure> {
        match done {
            Done::Warmed(up_to) => self.warm = up_to.map_err(at_source(Step::Read))?,
            Done::Moved(moved) => {
                moved.refused.into_iter().for_each(|path| self.stats.refuse(path));
                self.stats.syscalls += moved.calls;
                self.ended |= moved.ended;
                let total = moved.bytes.iter().map(|(_, n)| n).sum();
                self.from.advance(total);
                self.to.advance(total);
                self.take(total);
                moved.bytes.into_iter().for_each(|(path, n)| self.stats.record_moved(path, n));
                self.give(CopyPath::Pump, 0);
                moved.result.map_err(at_target(Step::Move))?;
            }
            Done::Emptied(pipe, n, result) => {
                self.pipe = Some(pipe);
                self.stats.syscalls += 1;
                self.to.advance(n);
                self.give(CopyPath::Splice, n);
                match result {
                    Err(e) if is_refusal(&e) => self.stats.refuse(CopyPath::Splice),
                    result => result.map_err(at_target(Step::Write))?,
                }
            }
        }
        Ok(())
    }
}

/// Panics: a plan never selects a path that does not fit the ends.
fn unfit() -> Polled {
    unreachable!("internal: the path does not fit the ends")
}
