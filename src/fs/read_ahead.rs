//! Consecutive reads of one file that are in flight.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::file::File;
use crate::ops::program::Program;
use crate::ops::rw::Read;
use crate::runtime::programs::{Alone, run};

pub(crate) const PIECE: u64 = 256 << 10;
pub(crate) const DEPTH: usize = 2;

pub(super) type Under<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + Sync>>;

/// Reads in flight, in file order. Dropping it cancels them; their memory is kept until the kernel has released it.
#[derive(Default)]
pub(crate) struct ReadAhead {
    pieces: VecDeque<Piece>,
    uncached: bool,
}

struct Piece {
    range: Range<u64>,
    read: Under<Bytes>,
    done: Option<io::Result<Bytes>>,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pieces.iter().map(|piece| &piece.range)).finish()
    }
}

impl ReadAhead {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn end(&self) -> Option<u64> {
        self.pieces.back().map(|last| last.range.end)
    }

    /// Sets whether reads leave the page cache as it was, which the kernel and the file system must support.
    pub(crate) fn set_uncached(&mut self, uncached: bool) {
        self.uncached = uncached;
    }

    /// Starts reads from `range`, or behind the last one, until `depth` are in flight. Returns the number of reads
    /// started.
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>, file: &File, range: Range<u64>, depth: usize) -> usize {
        let mut start = self.end().unwrap_or(range.start);
        let mut begun = 0;
        while self.pieces.len() < depth && start < range.end {
            let end = range.end.min(start.saturating_add(PIECE));
            let mut read: Under<Bytes> = Box::pin(read(file.clone(), start..end, self.uncached));
            let done = match read.as_mut().poll(cx) {
                Poll::Ready(done) => Some(done),
                Poll::Pending => None,
            };
            self.pieces.push_back(Piece { range: start..end, read, done });
            (start, begun) = (end, begun + 1);
        }
        begun
    }

    /// Returns the bytes of the first read: fewer than requested at the end of the file. Drops the reads behind a
    /// failed or short one, because the file may have grown since. At least one read must be in flight.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let first = self.pieces.front_mut().expect("internal: no read is in flight");
        let done = match first.done.take() {
            Some(done) => done,
            None => ready!(first.read.as_mut().poll(cx)),
        };
        let whole = first.range.end - first.range.start;
        match &done {
            Ok(bytes) if bytes.len() as u64 == whole => drop(self.pieces.pop_front()),
            _ => self.pieces.clear(),
        }
        Poll::Ready(done)
    }
}

async fn read(file: File, range: Range<u64>, uncached: bool) -> io::Result<Bytes> {
    let read = Read::new(Arc::clone(file.shared()).into(), range.start, (range.end - range.start) as usize);
    let read = if uncached { read.uncached() } else { read };
    let (read, result) = run(Box::new(Program::of(read)), file.place(Alone::Ring)).await?.into_single::<Read>();
    result.map(|_| read.into_bytes())
}
