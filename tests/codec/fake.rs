//! Scripted inner writers that record their calls.
#![allow(dead_code, unreachable_pub, reason = "each program uses a part")]

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

/// Behaviour of one call of an inner writer.
#[derive(Clone, Debug)]
pub enum Act {
    Take(usize),
    TakeOne,
    /// Returns pending and wakes the task at once.
    Yield,
    /// Returns pending until [`Fake::wake`].
    Block,
    /// Accepts nothing and returns 0.
    Nothing,
    /// Returns one byte more than was offered.
    Claim,
    Fail(io::ErrorKind),
    Reset,
    Panic,
}

#[derive(Debug, Default)]
pub struct Seen {
    /// Next behaviours; the last one repeats for ever. An empty script accepts everything.
    pub script: VecDeque<Act>,
    pub always: Option<Act>,
    pub bytes: Vec<u8>,
    /// Lengths of the offered pieces, for each write that accepted something.
    pub calls: Vec<Vec<usize>>,
    pub polls: usize,
    /// Number of bytes offered by each of them.
    pub offers: Vec<usize>,
    pub flushes: usize,
    pub shutdowns: usize,
    waker: Option<Waker>,
}

/// A scripted inner writer. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    seen: Arc<Mutex<Seen>>,
    flat: bool,
}

impl Fake {
    pub fn new(script: impl IntoIterator<Item = Act>) -> Self {
        let fake = Self::default();
        fake.seen().script.extend(script);
        fake
    }

    pub fn always(act: Act) -> Self {
        let fake = Self::default();
        fake.seen().always = Some(act);
        fake
    }

    /// Creates one whose `is_write_vectored` is false.
    pub fn flat() -> Self {
        Self { flat: true, ..Self::default() }
    }

    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Returns whether this is the last clone.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.seen) == 1
    }

    pub fn wake(&self) {
        let waker = self.seen().waker.take();
        waker.expect("a task waits").wake();
    }

    fn write(&self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut seen = self.seen();
        seen.polls += 1;
        let offered: usize = pieces.iter().map(|piece| piece.len()).sum();
        seen.offers.push(offered);
        let act = seen.script.pop_front().or_else(|| seen.always.clone()).unwrap_or(Act::Take(usize::MAX));
        let n = match act {
            Act::Take(most) => offered.min(most),
            Act::TakeOne => pieces.first().map_or(0, |piece| piece.len()),
            Act::Yield => {
                drop(seen);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Act::Block => {
                seen.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Act::Nothing => return Poll::Ready(Ok(0)),
            Act::Claim => return Poll::Ready(Ok(offered + 1)),
            Act::Fail(kind) => return Poll::Ready(Err(io::Error::new(kind, "as told"))),
            Act::Reset => return Poll::Ready(Err(rustix::io::Errno::CONNRESET.into())),
            Act::Panic => {
                drop(seen);
                panic!("the inner writer panics, as scripted");
            }
        };
        seen.calls.push(pieces.iter().map(|piece| piece.len()).collect());
        let all = pieces.iter().flat_map(|piece| piece.iter());
        seen.bytes.extend(all.take(n));
        Poll::Ready(Ok(n))
    }
}

impl AsyncWrite for Fake {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, piece: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, &[IoSlice::new(piece)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.flat, "a vectored write to a flat writer");
        self.write(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        !self.flat
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.seen().flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut seen = self.seen();
        seen.shutdowns += 1;
        if seen.shutdowns == 1 {
            // The first poll is pending, as for a protocol with a closing handshake.
            drop(seen);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}
