//! A body from an [`AsyncRead`].
//!
//! Invariants:
//! 1. Read bytes are delivered before the error or the end behind them.
//! 2. Memory is leased only during a poll: a reader that waits holds none.
//! 3. With an exact length, the body delivers that many bytes or fails.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::io::AsyncRead;

use crate::buf::pool;

/// Lengths of a frame: blocks of the pool.
const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Number of frames in a row with less than a quarter of their block, after which a smaller one is used.
const SHORT_MAX: u8 = 4;
/// Maximum number of reads for one frame, so that a reader of few bytes yields the thread.
const READS_MAX: usize = 64;

/// Creates a body with the bytes of `reader`, up to its end.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use http_body_util::BodyExt;
/// use millstream::body::from_reader;
///
/// let body = from_reader(&b"some bytes"[..]).exact(10);
/// assert_eq!(body.collect().await?.to_bytes(), "some bytes");
/// # Ok(())
/// # }
/// ```
pub fn from_reader<R: AsyncRead>(reader: R) -> ReaderBody<R> {
    ReaderBody { reader, left: None, size: 1, short: 0, state: ReaderState::Reading }
}

pin_project! {
    /// The body of [`from_reader`].
    ///
    /// A frame has the bytes that are ready, up to 4 to 256 KiB: the size grows while frames are full, and shrinks
    /// while they are short. They are read into pool memory, which the streams of this crate send without a copy. A
    /// reader that waits holds no memory.
    ///
    /// # Errors
    ///
    /// An error of the reader is returned behind the bytes before it, and ends the body. With an [exact](Self::exact)
    /// length, a reader that ends early fails the body with `ErrorKind::UnexpectedEof`.
    #[derive(Debug)]
    pub struct ReaderBody<R> {
        #[pin]
        reader: R,
        // Bytes to come, if the length is known.
        left: Option<u64>,
        // Index of the size of the next frame.
        size: usize,
        short: u8,
        state: ReaderState,
    }
}

#[derive(Debug)]
enum ReaderState {
    Reading,
    /// The reader has ended, but not the body.
    Ended(Option<io::Error>),
    Done,
}

impl<R> ReaderBody<R> {
    /// Sets the length of the body in bytes, so that HTTP announces it. At most `len` bytes are read.
    pub fn exact(mut self, len: u64) -> Self {
        self.left = Some(len);
        self
    }
}

impl<R: AsyncRead> Body for ReaderBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut me = self.project();
        if matches!(me.state, ReaderState::Reading) && *me.left != Some(0) {
            let block = SIZES[*me.size];
            let max = me.left.map_or(block, |left| left.min(block as u64) as usize);
            let mut lease = pool::lease(max);
            for _ in 0..READS_MAX {
                let len = lease.len();
                if len == max {
                    break;
                }
                match lease.poll_read(cx, me.reader.as_mut(), max - len) {
                    Poll::Ready(Ok(())) if lease.len() > len => {}
                    Poll::Ready(end) => {
                        *me.state = ReaderState::Ended(end.err());
                        break;
                    }
                    Poll::Pending if len == 0 => return Poll::Pending,
                    Poll::Pending => break,
                }
            }
            if !lease.is_empty() {
                adapt(me.size, me.short, lease.len());
                if let Some(left) = me.left {
                    *left -= lease.len() as u64;
                }
                return Poll::Ready(Some(Ok(Frame::data(lease.freeze()))));
            }
        }
        Poll::Ready(match std::mem::replace(me.state, ReaderState::Done) {
            ReaderState::Ended(Some(e)) => Some(Err(e)),
            ReaderState::Ended(None) if me.left.is_some_and(|left| left > 0) => {
                let message = format!("the reader ended {} bytes early", me.left.unwrap_or_default());
                Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, message)))
            }
            ReaderState::Ended(None) | ReaderState::Reading | ReaderState::Done => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, ReaderState::Done) || self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Changes the size of the next frame after one of `len` bytes.
fn adapt(size: &mut usize, short: &mut u8, len: usize) {
    *short = if len < SIZES[*size] / 4 { *short + 1 } else { 0 };
    if len == SIZES[*size] {
        *size = (*size + 1).min(SIZES.len() - 1);
    } else if *short == SHORT_MAX {
        (*size, *short) = (size.saturating_sub(1), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_follows_the_lengths() {
        let (mut size, mut short) = (1, 0);
        let mut after = |lens: &[usize]| {
            for &len in lens {
                adapt(&mut size, &mut short, len);
            }
            SIZES[size]
        };
        assert_eq!(after(&[16 << 10]), 64 << 10);
        assert_eq!(after(&[64 << 10, 256 << 10, 256 << 10]), 256 << 10);
        assert_eq!(after(&[1, 1, 1]), 256 << 10);
        assert_eq!(after(&[100 << 10, 1, 1, 1]), 256 << 10, "not in a row");
        assert_eq!(after(&[1]), 64 << 10);
        assert_eq!(after(&[1; 100]), 4 << 10);
    }
}
