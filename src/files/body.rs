//! The body of a response from a directory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::listing::ListingBody;
use crate::body::FileBody;

/// The body of a response from [`Files`](super::Files): a [`FileBody`], whose safety contract applies, or the listing
/// of a directory. Its error contains an [`fs::Error`](crate::fs::Error).
#[derive(Debug)]
pub struct FilesBody(Inner);

#[derive(Debug)]
enum Inner {
    File(FileBody),
    Listing(Box<ListingBody>),
}

impl FilesBody {
    pub(super) fn listing(body: ListingBody) -> Self {
        Self(Inner::Listing(Box::new(body)))
    }
}

impl From<FileBody> for FilesBody {
    fn from(body: FileBody) -> Self {
        Self(Inner::File(body))
    }
}

impl Body for FilesBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.get_mut().0 {
            Inner::File(body) => Pin::new(body).poll_frame(cx),
            Inner::Listing(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::File(body) => body.is_end_stream(),
            Inner::Listing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::File(body) => body.size_hint(),
            Inner::Listing(body) => body.size_hint(),
        }
    }
}
