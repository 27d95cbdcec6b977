//! Bodies of answers: bytes and ranges of files, or events as they come.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};
use millstream::body::FileBody;

pub(crate) type Events = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Bytes),
    File(FileBody),
}

pub(crate) enum Body {
    Pieces(VecDeque<Piece>),
    Events(Events),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Pieces(VecDeque::new())
    }

    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Pieces([Piece::Bytes(text.into())].into())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Events(events) => {
                events.as_mut().poll_next(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
            Self::Pieces(pieces) => loop {
                match pieces.front_mut() {
                    None => return Poll::Ready(None),
                    Some(Piece::Bytes(bytes)) => {
                        let bytes = std::mem::take(bytes);
                        pieces.pop_front();
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    Some(Piece::File(file)) => match ready!(Pin::new(file).poll_frame(cx)) {
                        Some(frame) => return Poll::Ready(Some(frame.map_err(io::Error::other))),
                        None => drop(pieces.pop_front()),
                    },
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Pieces(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Events(_) => SizeHint::default(),
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.iter().map(Piece::len).sum()),
        }
    }
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => http_body::Body::size_hint(file).lower(),
        }
    }
}
