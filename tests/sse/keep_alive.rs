//! Comments in any event stream: between its events, in each silence, and nowhere else.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full};
use millstream::sse::KeepAlive;
use proptest::prelude::*;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::parse::{Parser, Seen, Woken};
use testkit::http::{Flavour, watched};

const PERIOD: Duration = Duration::from_secs(15);
const COMMENT: &str = ":\n";

type Source = mpsc::Sender<io::Result<Frame<Bytes>>>;

/// A body whose frames come from a channel; it tells how often it was polled.
struct Fed(mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(100)
    }
}

fn fed(period: Duration) -> (Source, KeepAlive<Fed>) {
    let (source, frames) = mpsc::channel(8);
    (source, KeepAlive::new(Fed(frames), period))
}

fn give(source: &Source, text: impl AsRef<[u8]>) {
    source.try_send(Ok(Frame::data(Bytes::copy_from_slice(text.as_ref())))).unwrap();
}

async fn next<B: Body<Data = Bytes, Error = io::Error> + Unpin>(body: &mut B) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

/// Polls once.
fn poll(body: &mut (impl Body<Data = Bytes, Error = io::Error> + Unpin), waker: &Waker) -> Poll<Option<Bytes>> {
    let frame = Pin::new(body).poll_frame(&mut Context::from_waker(waker));
    frame.map(|frame| frame.map(|frame| frame.unwrap().into_data().unwrap()))
}

fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::<Woken>::default();
    (Arc::clone(&woken), woken.into())
}

/// Waits for as long that an idle body has a comment.
async fn silence() {
    for _ in 0..4 {
        advance(PERIOD / 2).await;
        settle().await;
    }
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Returns the events that a browser sees, and the comments.
fn seen(stream: &[u8]) -> (Vec<Seen>, usize) {
    let text = String::from_utf8(stream.to_vec()).unwrap();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    let mut parser = Parser::default();
    (parser.feed(text.as_bytes()), parser.comments)
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gets_comments_from_its_start() {
    let (source, mut body) = fed(PERIOD);
    let start = Instant::now();
    for n in 1..=4 {
        assert_eq!(next(&mut body).await, COMMENT);
        let passed = start.elapsed();
        assert!(passed <= PERIOD * n && passed >= PERIOD * n / 2, "comment {n} after {passed:?}");
    }
    give(&source, "data: a\n\n");
    assert_eq!(next(&mut body).await, "data: a\n\n");
    assert_eq!(next(&mut body).await, COMMENT);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_silent_gets_none() {
    let (source, mut body) = fed(PERIOD);
    for n in 0..40 {
        let event = format!("data: {n}\n\n");
        give(&source, &event);
        assert_eq!(next(&mut body).await, event);
        assert!(timeout(PERIOD / 3, body.frame()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_frame_is_no_sign_of_life() {
    let (source, mut body) = fed(PERIOD);
    let mut comments = 0;
    for _ in 0..30 {
        give(&source, "");
        assert_eq!(next(&mut body).await, "");
        comments += usize::from(timeout(PERIOD / 3, body.frame()).await.is_ok());
    }
    assert!(comments > 5, "{comments}");
}

#[tokio::test(start_paused = true)]
async fn zero_disables_comments() {
    let (source, mut body) = fed(Duration::ZERO);
    assert_eq!(body.size_hint().exact(), Some(100));
    assert!(timeout(Duration::from_secs(3600), body.frame()).await.is_err());
    give(&source, "\u{feff}data");
    assert_eq!(next(&mut body).await, "\u{feff}data");
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_event_is_left_alone() {
    let (source, mut body) = fed(PERIOD);
    for piece in ["data: a", "\r", "\n", "data: b\r", "data: c\n"] {
        give(&source, piece);
        assert_eq!(next(&mut body).await, piece);
        assert!(timeout(PERIOD * 10, body.frame()).await.is_err(), "{piece:?}");
    }
    give(&source, "\r");
    assert_eq!(next(&mut body).await, "\r");
    let start = Instant::now();
    assert_eq!(next(&mut body).await, COMMENT);
    assert!((PERIOD / 2..=PERIOD).contains(&start.elapsed()), "the silence begins with the end of the event");
    // The second half of the line end.
    give(&source, "\n");
    assert_eq!(next(&mut body).await, "\n");
    assert_eq!(next(&mut body).await, COMMENT);
}

#[tokio::test(start_paused = true)]
async fn the_end_trailers_and_errors_pass() {
    let trailers = HeaderMap::from_iter([(http::header::ETAG, "\"a\"".parse().unwrap())]);
    let (source, mut body) = fed(PERIOD);
    source.try_send(Ok(Frame::trailers(trailers.clone()))).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert!(timeout(PERIOD * 10, body.frame()).await.is_err(), "no data follows trailers");
    let (source, mut body) = fed(PERIOD);
    source.try_send(Err(io::Error::other("torn"))).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "torn");
    assert!(timeout(PERIOD * 10, body.frame()).await.is_err());
    let (source, mut body) = fed(PERIOD);
    assert_eq!(next(&mut body).await, COMMENT);
    assert!(!body.is_end_stream());
    drop(source);
    assert!(body.is_end_stream());
    assert!(body.frame().await.is_none());
    assert!(KeepAlive::new(Empty::<Bytes>::new(), PERIOD).is_end_stream());
}

#[tokio::test(start_paused = true)]
async fn the_size_is_no_longer_known() {
    let mut body = KeepAlive::new(Full::new(Bytes::from("\u{feff}data: a\n\n")), PERIOD);
    // A byte order mark may leave.
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (9, None));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "\u{feff}data: a\n\n");
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (0, None));
    let (source, mut body) = fed(PERIOD);
    give(&source, "data");
    next(&mut body).await;
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (100, None));
}

#[tokio::test(start_paused = true)]
async fn data_keeps_its_address() {
    let (source, mut body) = fed(PERIOD);
    assert_eq!(next(&mut body).await, COMMENT);
    let data = Bytes::from(b"data: a\n\n".to_vec());
    source.try_send(Ok(Frame::data(data.clone()))).unwrap();
    assert_eq!(next(&mut body).await.as_ptr(), data.as_ptr());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_does_not_poll_gets_one_comment() {
    let (_source, mut body) = fed(PERIOD);
    let (woken, waker) = waker();
    assert!(poll(&mut body, &waker).is_pending());
    for _ in 0..100 {
        silence().await;
    }
    assert!(woken.count() > 0);
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Bytes::from(COMMENT))));
    assert!(poll(&mut body, &waker).is_pending());
}

/// The stream may be silent inside of its byte order mark, which is held after a comment.
#[tokio::test(start_paused = true)]
async fn held_bytes_end_a_silence() {
    let (source, mut body) = fed(PERIOD);
    let (_, waker) = waker();
    assert!(poll(&mut body, &waker).is_pending());
    silence().await;
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Bytes::from(COMMENT))));
    for part in [&b"\xef"[..], b"\xbb\xbf"] {
        give(&source, part);
        assert!(poll(&mut body, &waker).is_pending());
        silence().await;
    }
    assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Bytes::from(COMMENT))));
}

#[derive(Clone, Debug)]
struct Piece {
    bytes: Vec<u8>,
    /// Whether the stream is silent after it.
    silent: bool,
}

/// A stream of events with any line ends, cut anywhere.
fn stream() -> impl Strategy<Value = (bool, Vec<Piece>)> {
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    let field = prop_oneof![
        4 => Just("data: x"), 1 => Just("data:"), 1 => Just("event: e"), 1 => Just("id: 1"), 1 => Just(": c"),
        1 => Just("retry: 5"), 1 => Just("data: é"), 3 => Just("")
    ];
    let lines = prop::collection::vec((field, end), 0..20);
    (any::<bool>(), any::<bool>(), lines, prop::collection::vec((0usize..200, any::<bool>()), 0..24)).prop_map(
        |(has_bom, silent_first, lines, cuts)| {
            let mut text = if has_bom { "\u{feff}".to_owned() } else { String::new() };
            lines.iter().for_each(|(field, end)| text.extend([*field, *end]));
            let text = text.into_bytes();
            let mut cuts: VecDeque<_> = cuts.into_iter().filter(|(at, _)| *at < text.len()).collect();
            cuts.make_contiguous().sort();
            let (mut pieces, mut from) = (Vec::new(), 0);
            for (to, silent) in cuts.into_iter().chain([(text.len(), true)]) {
                if to > from {
                    pieces.push(Piece { bytes: text[from..to].to_vec(), silent });
                    from = to;
                }
            }
            (silent_first, pieces)
        },
    )
}

/// Returns whether a stream that has begun with these bytes is between two events.
fn is_between(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = String::from_utf8_lossy(text).replace("\r\n", "\n").replace('\r', "\n");
    ["", "\n"].contains(&&*lines) || lines.ends_with("\n\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_client_sees_the_events_of_the_plain_stream((silent_first, pieces) in stream()) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let plain: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.clone()).collect();
        let (got, silences) = runtime.block_on(async {
            let (source, mut body) = fed(PERIOD);
            let (mut got, mut given, mut silences) = (Vec::new(), Vec::new(), 0);
            let (_, waker) = waker();
            let first = Piece { bytes: Vec::new(), silent: silent_first };
            for piece in [first].iter().chain(&pieces) {
                if !piece.bytes.is_empty() {
                    give(&source, &piece.bytes);
                }
                given.extend_from_slice(&piece.bytes);
                let mut comments = 0;
                while let Poll::Ready(frame) = poll(&mut body, &waker) {
                    got.extend(frame.unwrap());
                }
                if piece.silent {
                    silence().await;
                    while let Poll::Ready(frame) = poll(&mut body, &waker) {
                        assert_eq!(frame.as_deref(), Some(COMMENT.as_bytes()));
                        comments += 1;
                        got.extend(frame.unwrap());
                    }
                    let expected = usize::from(is_between(&given));
                    assert_eq!(comments, expected, "after {:?}", String::from_utf8_lossy(&given));
                    silences += comments;
                }
            }
            drop(source);
            assert!(poll(&mut body, &waker) == Poll::Ready(None));
            (got, silences)
        });
        let ((expected, own), (events, comments)) = (seen(&plain), seen(&got));
        prop_assert_eq!(&events, &expected, "{:?} became {:?}", plain, got);
        prop_assert_eq!(comments, own + silences);
        // Without the comments, all bytes but a byte order mark are the same.
        let without = got.len() - silences * COMMENT.len();
        prop_assert!(without == plain.len() || without == plain.len() - 3);
    }
}

#[test]
fn ten_thousand_streams_have_a_task_for_each_worker_which_ends_with_them() {
    watched(|| {
        for flavour in Flavour::BOTH {
            let runtime = flavour.runtime();
            let metrics = runtime.metrics();
            runtime.block_on(async {
                let period = Duration::from_millis(100);
                let (wakes, waker) = waker();
                let mut bodies: Vec<_> = (0..10_000).map(|_| fed(period)).collect();
                assert_eq!(metrics.num_alive_tasks(), 0, "none waits yet");
                bodies.iter_mut().for_each(|(_, body)| assert!(poll(body, &waker).is_pending()));
                assert_eq!(metrics.num_alive_tasks(), metrics.num_workers(), "{flavour:?}");
                let mut commented = vec![false; bodies.len()];
                while commented.iter().any(|commented| !commented) {
                    sleep(Duration::from_millis(1)).await;
                    for ((_, body), commented) in bodies.iter_mut().zip(&mut commented) {
                        *commented |= poll(body, &waker).is_ready();
                    }
                }
                assert!(wakes.count() > 0);
                drop(bodies);
                while metrics.num_alive_tasks() > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
}

#[test]
fn periods_do_not_share_a_task() {
    watched(|| {
        let runtime = Flavour::CurrentThread.runtime();
        let metrics = runtime.metrics();
        runtime.block_on(async {
            let (_, waker) = waker();
            let hour = Duration::from_secs(3600);
            let mut slow: Vec<_> = (0..100).map(|_| fed(hour)).collect();
            let mut quick: Vec<_> = (0..100).map(|_| fed(Duration::from_millis(20))).collect();
            for (_, body) in slow.iter_mut().chain(&mut quick) {
                assert!(poll(body, &waker).is_pending());
            }
            assert_eq!(metrics.num_alive_tasks(), 2);
            for (_, body) in &mut quick {
                assert_eq!(next(body).await, COMMENT);
            }
            assert!(slow.iter_mut().all(|(_, body)| poll(body, &waker).is_pending()));
            drop((slow, quick));
            while metrics.num_alive_tasks() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        });
    });
}

#[test]
fn a_body_moves_between_runtimes_and_out_of_them() {
    watched(|| {
        // Far longer than the time between two polls at the end.
        let (source, mut body) = fed(Duration::from_secs(1));
        let (_, waker) = waker();
        assert!(poll(&mut body, &waker).is_pending(), "outside of a runtime there is no comment and no panic");
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(first.block_on(next(&mut body)), COMMENT);
        // `first` is still there, but nothing drives it.
        let second = Flavour::TwoWorkers.runtime();
        assert_eq!(second.block_on(next(&mut body)), COMMENT);
        assert_eq!(first.block_on(next(&mut body)), COMMENT);
        drop(first);
        let (done, mut result) = tokio::sync::oneshot::channel();
        second.spawn(async move {
            assert_eq!(next(&mut body).await, COMMENT);
            assert!(done.send(body).is_ok());
        });
        let mut body = second.block_on(&mut result).unwrap();
        give(&source, "data: a\n\n");
        assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Bytes::from("data: a\n\n"))));
        assert!(poll(&mut body, &waker).is_pending());
        drop(second);
        assert!(poll(&mut body, &waker).is_pending());
        give(&source, "data: b\n\n");
        assert_eq!(poll(&mut body, &waker), Poll::Ready(Some(Bytes::from("data: b\n\n"))));
    });
}

#[test]
fn a_runtime_that_ends_wakes_the_body_to_find_another() {
    watched(|| {
        let (_source, mut body) = fed(Duration::from_secs(3600));
        let (woken, waker) = waker();
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        first.block_on(async { assert!(poll(&mut body, &waker).is_pending()) });
        drop(first);
        assert_eq!(woken.count(), 1);
    });
}

#[test]
fn a_runtime_without_timers_has_no_comments() {
    watched(|| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (source, mut body) = fed(Duration::from_millis(1));
            tokio::spawn(async move {
                settle().await;
                give(&source, "data: a\n\n");
            });
            assert_eq!(next(&mut body).await, "data: a\n\n");
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        });
    });
}

#[test]
fn a_body_adds_little() {
    // And 40 bytes in the wait list.
    assert_eq!(size_of::<KeepAlive<()>>(), 64);
}

/// The inner body is dropped with its wrapper.
#[tokio::test(start_paused = true)]
async fn the_body_is_dropped_at_once() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Body for Counts {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let (woken, waker) = waker();
    for n in 1..=1000 {
        let mut body = KeepAlive::new(Counts(Arc::clone(&dropped)), PERIOD);
        assert!(Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_pending());
        drop(body);
        assert_eq!(dropped.load(Ordering::SeqCst), n);
    }
    silence().await;
    drop(waker);
    assert_eq!((woken.count(), Arc::strong_count(&woken)), (0, 1), "no waker is left");
}
