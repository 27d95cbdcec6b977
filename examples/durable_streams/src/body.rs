//! Bodies of answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, stream};
use http_body::{Frame, SizeHint};

/// Bytes as they come, and how many are left if that is known.
pub(crate) struct Body {
    bytes: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>,
    left: Option<u64>,
}

impl Body {
    pub(crate) fn new(bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static, left: Option<u64>) -> Self {
        Self { bytes: Box::pin(bytes), left }
    }

    pub(crate) fn empty() -> Self {
        Self::new(stream::empty(), Some(0))
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let len = text.len() as u64;
        Self::new(stream::iter([Ok(text)]), Some(len))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        this.bytes.as_mut().poll_next(cx).map_ok(|bytes| {
            this.left = this.left.map(|left| left.saturating_sub(bytes.len() as u64));
            Frame::data(bytes)
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
