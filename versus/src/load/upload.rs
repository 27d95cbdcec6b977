//! The body of a request that hyper sends.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// Length of a frame: small beside what is sent in a round, so that a part of a body is counted as it leaves.
const FRAME: usize = 64 << 10;

/// Bytes that are counted when hyper takes them. Empty by default, as `GET` needs it.
#[derive(Debug, Default)]
pub(super) struct Upload {
    rest: &'static [u8],
    taken: Arc<AtomicU64>,
}

impl Upload {
    pub(super) fn new(bytes: &'static [u8], taken: Arc<AtomicU64>) -> Self {
        Self { rest: bytes, taken }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let (frame, rest) = self.rest.split_at(self.rest.len().min(FRAME));
        self.rest = rest;
        self.taken.fetch_add(frame.len() as u64, Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(frame)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn a_body_is_counted_as_it_is_taken() {
        static BYTES: [u8; FRAME + 1] = [7; FRAME + 1];
        let taken = Arc::<AtomicU64>::default();
        let mut body = Upload::new(&BYTES, taken.clone());
        assert_eq!(body.size_hint().exact(), Some(BYTES.len() as u64));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (frame, count) in [(FRAME, FRAME), (1, FRAME + 1)] {
            let data = runtime.block_on(body.frame()).unwrap().unwrap().into_data().unwrap();
            assert_eq!((data.len(), taken.load(Relaxed)), (frame, count as u64));
        }
        assert!(body.is_end_stream() && runtime.block_on(body.frame()).is_none());
        assert!(Upload::default().is_end_stream());
    }
}
