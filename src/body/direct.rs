//! Bodies that can move their bytes from a socket to the socket of the client.

use std::any::Any;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body whose bytes are in a socket.
pub trait Direct: Body<Data = Bytes, Error = io::Error> + Send + Unpin {
    /// Polls the body. Returns whether the next bytes are in the socket, and `due` are left, so that they can be moved.
    /// Otherwise the next frame is ready, or must be waited for.
    fn prepare_move(&mut self, cx: &mut Context<'_>, due: u64) -> bool;

    /// Moves all bytes that are left to the stream `to`. Ready when they were accepted.
    fn poll_move(&mut self, cx: &mut Context<'_>, to: &mut dyn Any) -> Poll<io::Result<()>>;
}

/// A body that [`serve`](crate::server::serve()) moves from socket to socket, without its bytes in the process, where
/// both are plain sockets of this crate and the response has a `Content-Length` on HTTP/1.1. Elsewhere it gives frames.
pub struct DirectBody(Box<dyn Direct>);

impl DirectBody {
    #[doc(hidden)]
    pub fn new(body: impl Direct + 'static) -> Self {
        Self(Box::new(body))
    }

    pub(crate) fn direct(&mut self) -> &mut dyn Direct {
        &mut *self.0
    }
}

impl Body for DirectBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Pin::new(&mut *self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl fmt::Debug for DirectBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectBody").field("is_end_stream", &self.is_end_stream()).finish_non_exhaustive()
    }
}
