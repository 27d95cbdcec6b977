//! A served directory with files to truncate, where only the sending code can notice the truncation.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyStream, StreamBody};
use hyper::Request;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::CONTENT_LENGTH;
use millstream::files::{Files, FilesBody};
use tempfile::TempDir;

use crate::http::{Answer, Raw, ask, boxed, pages, start_with};

/// Small, so that most of a file is still unsent when a client has read its first bytes.
pub const SEND_BUFFER: Option<usize> = Some(32 << 10);

/// One frame of a mapped file, so that no later frame can detect the tear.
pub const LARGE: usize = 3 << 20;
/// Small enough to stay mapped. Sent from the mapping if `MILLSTREAM_DISABLE=sendfile` is set, else from the file.
pub const KEPT: usize = 100 << 10;

/// Creates a directory with a large and a kept file, and one that stays intact.
pub fn tree() -> (TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let bytes = pages(LARGE);
    std::fs::write(dir.path().join("large"), &bytes).unwrap();
    std::fs::write(dir.path().join("kept"), &bytes[..KEPT]).unwrap();
    std::fs::write(dir.path().join("fine"), "fine").unwrap();
    (dir, bytes)
}

/// Returns files that are never revalidated, so that the cache cannot notice the truncation.
pub fn believed(dir: &TempDir) -> Files {
    Files::builder(dir.path()).validate_every(Duration::from_secs(3600)).build().unwrap()
}

pub async fn believing(dir: &TempDir) -> SocketAddr {
    serve(dir, SEND_BUFFER, |_, bytes| bytes).await
}

/// Like [`believing`], with a layer that passes every frame to `handle`, except those of `/fine` and requests with the
/// query `plain` or `cut=n` (see [`ask_and_cut`]).
pub async fn middleware<F>(dir: &TempDir, handle: F) -> SocketAddr
where
    F: Fn(&mut Context<'_>, Bytes) -> Bytes + Clone + Send + Unpin + 'static,
{
    serve(dir, None, handle).await
}

/// Like [`middleware`], with a send buffer of `send_buffer` bytes for accepted sockets.
pub async fn serve<F>(dir: &TempDir, send_buffer: Option<usize>, handle: F) -> SocketAddr
where
    F: Fn(&mut Context<'_>, Bytes) -> Bytes + Clone + Send + Unpin + 'static,
{
    let (files, dir) = (believed(dir), dir.path().to_owned());
    start_with(send_buffer, move |request| {
        let (files, dir, handle) = (files.clone(), dir.clone(), handle.clone());
        async move {
            let (path, query) = (request.uri().path(), request.uri().query());
            if path == "/fine" || query == Some("plain") || query.is_some_and(|query| query.starts_with("cut=")) {
                return ask_and_cut(&files, &dir, &request).await;
            }
            let mut answer = ask(&files, &request, |inner| Handled::new(inner, handle)).await;
            if query == Some("chunked") {
                // As a layer does that changes the length.
                answer.headers_mut().remove(CONTENT_LENGTH);
                answer = answer.map(|body| boxed(StreamBody::new(BodyStream::new(body))));
            }
            answer
        }
    })
    .await
}

/// Returns the response of `files`. With the query `cut=n`, truncates its file to `n` bytes after the response is made:
/// before that, the cache might notice.
pub async fn ask_and_cut<B>(files: &Files, dir: &Path, request: &Request<B>) -> Answer {
    let answer = files.get(request.method(), request.uri(), request.headers()).await;
    if let Some(left) = request.uri().query().and_then(|query| query.strip_prefix("cut=")) {
        truncate(&dir.join(&request.uri().path()[1..]), left.parse().unwrap());
    }
    answer.map(boxed)
}

/// A body whose frames pass through a function.
pub struct Handled<F> {
    inner: FilesBody,
    handle: F,
}

impl<F> Handled<F> {
    pub fn new(inner: FilesBody, handle: F) -> Self {
        Self { inner, handle }
    }
}

impl<F: Fn(&mut Context<'_>, Bytes) -> Bytes + Unpin> Body for Handled<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|bytes| (self.handle)(cx, bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

pub fn truncate(path: &Path, len: usize) {
    File::options().write(true).open(path).unwrap().set_len(len as u64).unwrap();
}

/// Asserts that the server still works: on a new connection, with another file.
pub async fn lives(addr: SocketAddr) {
    assert_eq!(Raw::connect(addr).await.get("/fine").await, (200, b"fine".to_vec()));
}
