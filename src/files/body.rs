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
pub struct FilesBody(FilesBodyInner);

#[derive(Debug)]
enum FilesBodyInner {
    File(FileBody),
    Listing(Box<ListingBody>),
}

impl FilesBody {
    pub(super) fn listing(body: ListingBody) -> Self {
        Self(FilesBodyInner::Listing(Box::new(body)))
    }
}

impl From<FileBody> for FilesBody {
    fn from(body: FileBody) -> Self {
        Self(FilesBodyInner::File(body))
    }
}

impl Body for FilesBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.get_mut().0 {
            FilesBodyInner::File(body) => Pin::new(body).poll_frame(cx),
            FilesBodyInner::Listing(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            FilesBodyInner::File(body) => body.is_end_stream(),
            FilesBodyInner::Listing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            FilesBodyInner::File(body) => body.size_hint(),
            FilesBodyInner::Listing(body) => body.size_hint(),
        }
    }
}
