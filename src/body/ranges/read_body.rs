//! A body that reads ahead of the client, with a bounded number of reads in progress.
//!
//! Invariants:
//! 1. Pieces are delivered in order, and `left` is the exact number of bytes that are still to come.
//! 2. At most `in_flight` reads are in progress or wait to be delivered.
//! 3. A body that cannot deliver all bytes fails, and never ends early.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::multipart::Part;
use super::read_at::ReadAt;

type ReadFuture = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

/// A [`ReadAt`] of any type.
pub(super) trait Source: Send + Sync {
    fn read(self: Arc<Self>, offset: u64, len: usize) -> ReadFuture;
}

impl<S: ReadAt> Source for S {
    fn read(self: Arc<Self>, offset: u64, len: usize) -> ReadFuture {
        Box::pin(async move { self.read_at(offset, len).await })
    }
}

#[derive(Clone)]
pub(super) struct Plan {
    pub(super) source: Arc<dyn Source>,
    pub(super) in_flight: usize,
    pub(super) piece: u64,
}

/// The body of a response of [`Ranges`](super::Ranges). Dropping it drops its reads.
pub struct RangesBody {
    left: u64,
    /// `None` if there is nothing to read, and after an error.
    plan: Option<Plan>,
    /// Parts whose reads have not begun.
    parts: VecDeque<Part>,
    slots: VecDeque<Slot>,
}

enum Slot {
    Text(Bytes),
    Reading(Range<u64>, ReadFuture),
    Read(Range<u64>, io::Result<Bytes>),
}

// Compile-time check of the bounds that hyper and axum require of a body.
const _: () = {
    const fn body<B: Body + Send + Unpin + 'static>() {}
    body::<RangesBody>();
};

impl RangesBody {
    pub(super) fn empty() -> Self {
        Self { left: 0, plan: None, parts: VecDeque::new(), slots: VecDeque::new() }
    }

    pub(super) fn new(plan: Plan, parts: Vec<Part>) -> Self {
        let left = parts.iter().map(Part::len).sum();
        Self { left, plan: Some(plan), parts: parts.into(), slots: VecDeque::new() }
    }

    /// Begins reads until `in_flight` of them are in progress or wait.
    fn begin(&mut self) {
        let Some(plan) = &self.plan else { return };
        let mut reads = self.slots.iter().filter(|slot| !matches!(slot, Slot::Text(_))).count();
        while reads < plan.in_flight
            && let Some(part) = self.parts.pop_front()
        {
            match part {
                Part::Text(text) => self.slots.push_back(Slot::Text(text)),
                Part::Range(range) if range.is_empty() => {}
                Part::Range(range) => {
                    let end = range.end.min(range.start.saturating_add(plan.piece));
                    if end < range.end {
                        self.parts.push_front(Part::Range(end..range.end));
                    }
                    self.slots.push_back(plan.read(range.start..end));
                    reads += 1;
                }
            }
        }
    }

    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.begin();
        // Polls all of them: each wakes the task when it can continue.
        for slot in &mut self.slots {
            if let Slot::Reading(range, read) = slot
                && let Poll::Ready(done) = read.as_mut().poll(cx)
            {
                *slot = Slot::Read(range.clone(), done);
            }
        }
        match self.slots.pop_front() {
            None => Poll::Ready(None),
            Some(Slot::Text(text)) => Poll::Ready(Some(Ok(text))),
            Some(Slot::Read(range, done)) => Poll::Ready(Some(done.and_then(|bytes| self.deliver(range, bytes)))),
            Some(reading) => {
                self.slots.push_front(reading);
                Poll::Pending
            }
        }
    }

    /// Checks the bytes of a read, and begins to read those that it did not return.
    fn deliver(&mut self, range: Range<u64>, bytes: Bytes) -> io::Result<Bytes> {
        let (wanted, len) = (range.end - range.start, bytes.len() as u64);
        if len == 0 {
            let message = format!("no bytes at offset {}, {wanted} bytes before the end of the read", range.start);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        if len > wanted {
            let message = format!("{len} bytes at offset {}, where {wanted} were asked for", range.start);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| len < wanted) {
            self.slots.push_front(plan.read(range.start + len..range.end));
        }
        Ok(bytes)
    }
}

impl Plan {
    fn read(&self, range: Range<u64>) -> Slot {
        let len = (range.end - range.start) as usize;
        let read = Arc::clone(&self.source).read(range.start, len);
        Slot::Reading(range, read)
    }
}

impl Body for RangesBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.poll_front(cx)
            .map_ok(|bytes| {
                self.left -= bytes.len() as u64;
                Frame::data(bytes)
            })
            .map(|frame| {
                if frame.as_ref().is_some_and(Result::is_err) {
                    self.plan = None;
                    self.parts.clear();
                    self.slots.clear();
                }
                frame
            })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl fmt::Debug for RangesBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangesBody").field("left", &self.left).field("reads", &self.slots.len()).finish_non_exhaustive()
    }
}
