//! Merges data frames that are ready into one, and never waits for more.
//!
//! hyper hands each frame to the connection by itself, and over HTTP/2 each frame of 256 bytes or more costs a write of
//! its own. A body that makes many small frames (tokens, events, log lines) is faster behind a [`Batch`].
//!
//! Invariants:
//! 1. What comes out is what came in: the same bytes in the same order, then the same trailers or error.
//! 2. The inner body is not polled while something that came out of it is held back, nor after its end.
//! 3. `Pending` is returned only when the inner body has just returned `Pending` and nothing is held back.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::buf::pool;

/// Default limit in bytes. With its head of 9 bytes such a frame fills 16 KiB, which is one HTTP/2 DATA frame for every
/// peer (RFC 9113 §4.2) and one TLS record.
const DEFAULT_LIMIT: usize = (16 << 10) - 9;

/// Largest limit in bytes.
const MAX_LIMIT: usize = 1 << 20;

/// Frames taken from the inner body in one call, empty ones included, so that a body that is always ready gives the
/// thread back. 256 frames of 64 bytes fill the default limit.
const FRAMES_PER_CALL: usize = 256;

pin_project! {
    /// A body whose data frames are those of `B`, merged while they are ready.
    ///
    /// Each poll takes frames from the inner body until it has none ready, ends, fails, gives trailers, or the limit is
    /// reached, and returns them as one frame. No delay is added: with one frame ready, that frame is returned.
    ///
    /// | ready in the inner body | returned |
    /// |---|---|
    /// | one frame | that frame, not copied |
    /// | several frames within the limit | one frame, copied once |
    /// | a frame at or above the limit | that frame, not copied |
    /// | a frame that does not fit any more | what came before it; the frame itself at the next poll |
    /// | trailers, an error or the end, after data | the data; the rest at the next poll |
    ///
    /// Dropping a `Batch` drops the frames it holds back; there are some only between two polls.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::{BodyExt, StreamBody};
    /// use hyper::body::Frame;
    /// use millstream::body::Batch;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let tokens = ["The ", "mill ", "turns."].map(|token| Ok::<_, std::io::Error>(Frame::data(Bytes::from(token))));
    /// let mut body = Batch::new(StreamBody::new(futures_util::stream::iter(tokens)));
    ///
    /// let frame = body.frame().await.unwrap().unwrap();
    /// assert_eq!(frame.into_data().unwrap(), "The mill turns.");
    /// assert!(body.frame().await.is_none());
    /// # }
    /// ```
    pub struct Batch<B: Body> {
        #[pin]
        inner: B,
        limit: usize,
        // A frame that did not fit.
        held: Option<Bytes>,
        // What stopped the merging, to be told after the data.
        after: Option<Result<Frame<Bytes>, B::Error>>,
        ended: bool,
        // Frames being merged; empty between polls, kept for its memory.
        parts: Vec<Bytes>,
    }
}

impl<B: Body<Data = Bytes>> Batch<B> {
    /// Merges ready frames of `body` up to 16 375 bytes: 16 KiB with the head of an HTTP/2 DATA frame, which is one frame
    /// for every peer ([RFC 9113 §4.2](https://www.rfc-editor.org/rfc/rfc9113#section-4.2)) and one TLS record.
    pub fn new(body: B) -> Self {
        Self::with_limit(body, DEFAULT_LIMIT)
    }

    /// Merges ready frames of `body` up to `bytes` bytes, at most 1 MiB. With 0 nothing is merged.
    pub fn with_limit(body: B, bytes: usize) -> Self {
        let limit = bytes.min(MAX_LIMIT);
        Self { inner: body, limit, held: None, after: None, ended: false, parts: Vec::new() }
    }

    /// The inner body. What was taken out of it and is still held back is lost, so call this before the first poll or
    /// after the end.
    pub fn into_inner(self) -> B {
        self.inner
    }
}

impl<B> Body for Batch<B>
where
    B: Body<Data = Bytes>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let first = match this.held.take() {
            Some(held) => held,
            None if this.after.is_some() => return Poll::Ready(this.after.take()),
            None if *this.ended => return Poll::Ready(None),
            None => match ready!(this.inner.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    *this.ended = true;
                    return Poll::Ready(None);
                }
            },
        };

        let mut total = first.len();
        this.parts.push(first);
        let mut frames = 1;
        while total < *this.limit && frames < FRAMES_PER_CALL && !this.inner.is_end_stream() {
            frames += 1;
            // `Pending` has left our waker with the inner body; whoever takes this frame comes back for the next one.
            let Poll::Ready(next) = this.inner.as_mut().poll_frame(cx) else { break };
            match next.map(|next| next.map(Frame::into_data)) {
                Some(Ok(Ok(data))) if data.len() <= *this.limit - total => {
                    total += data.len();
                    if !data.is_empty() {
                        this.parts.push(data);
                    }
                    continue;
                }
                Some(Ok(Ok(data))) => *this.held = Some(data),
                Some(Ok(Err(trailers))) => *this.after = Some(Ok(trailers)),
                Some(Err(error)) => *this.after = Some(Err(error)),
                None => *this.ended = true,
            }
            break;
        }
        Poll::Ready(Some(Ok(Frame::data(merge(this.parts, total)))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.after.is_none() && (self.ended || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        if self.ended {
            return SizeHint::with_exact(held);
        }
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(held));
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(held)) {
            hint.set_upper(upper);
        }
        hint
    }
}

/// One frame of `total` bytes out of `parts`, which it empties. A part that is alone stays as it is.
fn merge(parts: &mut Vec<Bytes>, total: usize) -> Bytes {
    if let Some(whole) = parts.iter().position(|part| part.len() == total) {
        let whole = parts.swap_remove(whole);
        parts.clear();
        return whole;
    }
    // Leased at the size that is needed: with a slow reader many merged frames can be waiting at the same time.
    let mut merged = pool::lease(total);
    for part in parts.drain(..) {
        merged.extend_from_slice(&part);
    }
    merged.freeze()
}

// By hand, because a body's error need not be `Debug`.
impl<B: Body + fmt::Debug> fmt::Debug for Batch<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("inner", &self.inner)
            .field("limit", &self.limit)
            .field("held", &self.held.as_ref().map(Bytes::len))
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
