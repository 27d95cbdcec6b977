//! Behavior of hyper's HTTP/1 that the server assumes beyond its documentation: docs/assumptions.md.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1::{Builder, Connection};
use hyper::service::service_fn;
use hyper::{Request, Response, rt};

const GET: &str = "GET / HTTP/1.1\r\nHost: mill\r\n\r\n";
const FRAME: usize = 16 << 10;
/// The size of hyper's buffer here.
const BUFFER: usize = 64 << 10;

/// A stream that gives `input`, accepts `room` bytes, and records what it is offered.
#[derive(Clone)]
struct Recorder(Arc<Mutex<Record>>);

struct Record {
    input: Vec<u8>,
    room: usize,
    written: Vec<u8>,
    /// Address and length of the slices of each write.
    offered: Vec<Vec<(usize, usize)>>,
}

impl Recorder {
    fn new(input: &str, room: usize) -> Self {
        let record = Record { input: input.into(), room, written: Vec::new(), offered: Vec::new() };
        Self(Arc::new(Mutex::new(record)))
    }
}

impl rt::Read for Recorder {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, mut buf: rt::ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let input = &mut self.0.lock().unwrap().input;
        if input.is_empty() {
            return Poll::Pending;
        }
        let n = input.len().min(buf.remaining());
        buf.put_slice(&input[..n]);
        input.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl rt::Write for Recorder {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut record = self.0.lock().unwrap();
        record.offered.push(bufs.iter().map(|buf| (buf.as_ptr().addr(), buf.len())).collect());
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(record.room).collect();
        if bytes.is_empty() {
            return Poll::Pending;
        }
        record.room -= bytes.len();
        record.written.extend_from_slice(&bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A body of `left` equal frames, pending afterwards, that counts how often it is polled.
#[derive(Clone)]
struct Frames {
    frame: Bytes,
    left: usize,
    is_sized: bool,
    polls: Arc<AtomicUsize>,
}

impl Frames {
    fn new(left: usize, is_sized: bool) -> Self {
        Self { frame: vec![b'a'; FRAME].into(), left, is_sized, polls: Arc::default() }
    }

    fn polls(&self) -> usize {
        self.polls.load(Ordering::Relaxed)
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        if self.left == 0 {
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(self.frame.clone()))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_sized { SizeHint::with_exact((self.left * FRAME) as u64) } else { SizeHint::default() }
    }
}

/// Runs `use_it` with a connection that answers each request with `body`.
fn connected<R>(
    stream: &Recorder,
    body: &Frames,
    use_it: impl FnOnce(&mut dyn FnMut(bool) -> Poll<hyper::Result<()>>) -> R,
) -> (R, Bytes) {
    let body = body.clone();
    let service = service_fn(move |_: Request<Incoming>| {
        let body = body.clone();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let mut connection: Connection<_, _> =
        Builder::new().max_buf_size(BUFFER).serve_connection(stream.clone(), service);
    let result = use_it(&mut |asks_to_end| {
        if asks_to_end {
            Pin::new(&mut connection).graceful_shutdown();
        }
        Pin::new(&mut connection).poll(&mut Context::from_waker(Waker::noop()))
    });
    (result, connection.into_parts().read_buf)
}

#[test]
fn frames_are_offered_at_their_address_in_at_most_64_slices() {
    let (stream, body) = (Recorder::new(GET, usize::MAX), Frames::new(100, false));
    let (polled, _) = connected(&stream, &body, |poll| poll(false).is_pending());
    assert!(polled);
    let record = stream.0.lock().unwrap();
    assert!(record.offered.iter().all(|slices| slices.len() <= 64));
    let frames = record.offered.iter().flatten().filter(|slice| **slice == (body.frame.as_ptr().addr(), FRAME));
    assert_eq!(frames.count(), 100);
}

#[test]
fn a_body_is_polled_only_while_there_is_room() {
    let (stream, body) = (Recorder::new(GET, 0), Frames::new(1000, false));
    connected(&stream, &body, |poll| (0..10).for_each(|_| assert!(poll(false).is_pending())));
    assert!(body.polls() <= BUFFER / FRAME + 1, "{} frames are held", body.polls());
}

#[test]
fn the_end_of_a_body_of_known_length_is_not_polled_for() {
    let (stream, body) = (Recorder::new(GET, usize::MAX), Frames::new(3, true));
    connected(&stream, &body, |poll| assert!(poll(false).is_pending()));
    assert_eq!(body.polls(), 3);
}

#[test]
fn the_parts_have_what_was_read_and_not_used() {
    let (stream, body) = (Recorder::new(&format!("{GET}GET /next HT"), usize::MAX), Frames::new(1, false));
    let ((), rest) = connected(&stream, &body, |poll| assert!(poll(false).is_pending()));
    assert_eq!(rest, "GET /next HT");
}

#[test]
fn the_parts_do_not_have_what_was_not_written() {
    let (stream, body) = (Recorder::new(GET, 10), Frames::new(1, false));
    let ((), rest) = connected(&stream, &body, |poll| assert!(poll(false).is_pending()));
    // So the count of bytes decides when a connection is taken from hyper.
    assert_eq!((rest.len(), stream.0.lock().unwrap().written.len()), (0, 10));
}

#[test]
fn a_connection_without_a_request_ends_when_it_is_asked_to() {
    let (stream, body) = (Recorder::new(GET, usize::MAX), Frames::new(1, true));
    connected(&stream, &body, |poll| {
        assert!(poll(false).is_pending());
        assert!(matches!(poll(true), Poll::Ready(Ok(()))));
    });
}

#[test]
fn what_is_no_request_is_a_parse_error_and_is_answered() {
    let (stream, body) = (Recorder::new("nonsense\r\n\r\n", usize::MAX), Frames::new(0, false));
    connected(&stream, &body, |poll| {
        assert!(matches!(poll(false), Poll::Ready(Err(error)) if error.is_parse()));
    });
    assert!(stream.0.lock().unwrap().written.starts_with(b"HTTP/1.1 400 "));
}
