//! `Compress` against decoders: scripted bodies, random frames and pauses.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame};
use millstream::body::{Compress, ContentCoding};
use proptest::prelude::*;

use crate::decode::{ALL, Decoder, whole};
use testkit::noise;

/// Maximum size of a frame.
const FRAME_MAX: usize = (16 << 10) - 9;

#[derive(Clone, Debug)]
enum Item {
    Data(Vec<u8>),
    Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Plain,
    Trailers,
    Error,
}

/// A body that gives its items, and counts.
#[derive(Debug)]
struct Scripted {
    items: VecDeque<Item>,
    end: Option<End>,
    given: Vec<u8>,
    pauses: bool,
}

impl Scripted {
    fn new(items: Vec<Item>, end: End) -> Self {
        Self { items: items.into(), end: Some(end), given: Vec::new(), pauses: false }
    }
}

/// Owned by the test, which looks into it between polls.
struct Shared(Arc<std::sync::Mutex<Scripted>>);

impl Body for Shared {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let mut script = self.0.lock().unwrap();
        script.pauses = false;
        match script.items.pop_front() {
            Some(Item::Data(data)) => {
                script.given.extend_from_slice(&data);
                Poll::Ready(Some(Ok(Frame::data(data.into()))))
            }
            Some(Item::Pending) => {
                script.pauses = true;
                Poll::Pending
            }
            None => Poll::Ready(match script.end.take().expect("not polled after its end") {
                End::Plain => {
                    script.end = None;
                    None
                }
                End::Trailers => {
                    script.end = Some(End::Plain);
                    Some(Ok(Frame::trailers(trailers())))
                }
                End::Error => Some(Err("cut")),
            }),
        }
    }
}

fn trailers() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    trailers
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Outcome {
    /// The compressed bytes.
    bytes: Vec<u8>,
    trailers: Option<HeaderMap>,
    error: Option<&'static str>,
    /// Polls that compressed and yielded.
    yields: usize,
    frames: usize,
}

/// Polls a compressed body to its end. After each pause of the inner body, all that it gave is decoded.
fn run(items: Vec<Item>, end: End, coding: ContentCoding, level: Option<u32>) -> Outcome {
    let script = Arc::new(std::sync::Mutex::new(Scripted::new(items, end)));
    let inner = Shared(Arc::clone(&script));
    let mut body = match level {
        Some(level) => Compress::with_level(inner, coding, level),
        None => Compress::new(inner, coding),
    };
    let mut decoder = Decoder::new(coding);
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut outcome = Outcome::default();
    loop {
        let frame = match Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(frame)) => frame,
            Poll::Ready(None) => break,
            Poll::Pending => {
                let script = script.lock().unwrap();
                if script.pauses {
                    assert!(decoder.decoded() == script.given, "{coding}: something is held back");
                } else {
                    outcome.yields += 1;
                    assert_eq!(woken.0.swap(0, Ordering::Relaxed), 1, "a pause of its own without a wake-up");
                }
                continue;
            }
        };
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                assert!(!data.is_empty() && data.len() <= FRAME_MAX);
                assert!(!body.is_end_stream() || script.lock().unwrap().end.is_none());
                outcome.frames += 1;
                outcome.bytes.extend_from_slice(&data);
                let decoded = decoder.feed(&data);
                let script = script.lock().unwrap();
                let is_full = data.len() == FRAME_MAX;
                assert!(!script.pauses || is_full || decoded == script.given, "{coding}: something is held back");
            }
            Ok(Err(frame)) => outcome.trailers = Some(frame.into_trailers().unwrap()),
            Err(error) => outcome.error = Some(error),
        }
    }
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    let script = script.lock().unwrap();
    assert!(decoder.decoded() == script.given, "{coding}: other bytes");
    match end {
        // Only a complete body has the end of its coding.
        End::Error => assert!(whole(coding, &outcome.bytes).is_err() || script.given.is_empty()),
        _ => assert!(whole(coding, &outcome.bytes).unwrap() == script.given),
    }
    assert_eq!(outcome.trailers, (end == End::Trailers).then(trailers));
    assert_eq!(outcome.error, (end == End::Error).then_some("cut"));
    outcome
}

fn item() -> impl Strategy<Value = Item> {
    let len = prop_oneof![6 => 0..100usize, 3 => 100..5000usize, 1 => 5000..150_000usize];
    prop_oneof![
        3 => (len.clone(), 0..30_000usize).prop_map(|(len, from)| Item::Data(noise(200_000)[from..from + len].to_vec())),
        3 => (len, 0..30usize).prop_map(|(len, from)| {
            Item::Data(b"the mill turns, and the stream goes on; ".repeat(len / 30 + 3)[from..from + len].to_vec())
        }),
        4 => Just(Item::Pending),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decoded_it_is_the_body_and_nothing_is_held_back(
        items in prop::collection::vec(item(), 0..20),
        end in prop_oneof![Just(End::Plain), Just(End::Trailers), Just(End::Error)],
        coding in prop_oneof![Just(ALL[0]), Just(ALL[1]), Just(ALL[2])],
        level in prop::option::of(0..12u32),
    ) {
        run(items, end, coding, level);
    }
}

/// Returns this many tokens with pauses after each.
fn tokens(count: usize, pauses: usize) -> Vec<Item> {
    let token =
        |n: usize| [vec![Item::Data(format!("token {n}, ").into_bytes())], vec![Item::Pending; pauses]].concat();
    (0..count).flat_map(token).collect()
}

#[test]
fn a_pause_without_data_is_not_flushed_again() {
    for coding in ALL {
        let once = run(tokens(50, 1), End::Plain, coding, None);
        assert_eq!(once.frames, 51, "{coding}: one frame for each token, and the end");
        let often = run(tokens(50, 5), End::Plain, coding, None);
        assert_eq!(often.bytes, once.bytes, "{coding}");
        let never = run(tokens(50, 0), End::Plain, coding, None);
        assert_eq!(never.frames, 1, "{coding}: ready data is compressed together");
        assert!(never.bytes.len() < once.bytes.len());
    }
}

#[test]
fn a_long_frame_is_compressed_in_turns() {
    let len = 4 << 20;
    for coding in ALL {
        for data in [vec![b'x'; len], noise(len)] {
            let outcome = run(vec![Item::Data(data)], End::Plain, coding, None);
            assert!(outcome.yields >= len / (32 << 10) - 1, "{coding}: {} yields", outcome.yields);
        }
        // Many small ones, and empty ones, which are always ready.
        let outcome = run(vec![Item::Data(vec![b'x'; 100]); 10_000], End::Plain, coding, None);
        assert!(outcome.yields >= 1_000_000 / (32 << 10) - 1, "{coding}: {} yields", outcome.yields);
        let outcome = run(vec![Item::Data(Vec::new()); 100_000], End::Plain, coding, None);
        assert!(outcome.yields >= 2, "{coding}: {} yields", outcome.yields);
    }
}

#[tokio::test]
async fn an_empty_body_is_a_coding_without_data() {
    for coding in ALL {
        let body = Compress::new(Empty::<Bytes>::new(), coding);
        assert!(!body.is_end_stream() && body.size_hint().exact().is_none());
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(whole(coding, &bytes).unwrap(), b"", "{coding}");
    }
}

#[tokio::test]
async fn a_level_changes_the_size_and_levels_beyond_the_range_are_the_nearest() {
    let words = noise(60_000);
    let text: Vec<u8> = words
        .iter()
        .flat_map(|word| format!("word{} ", word.trailing_zeros() * 31 + u32::from(word % 29)).into_bytes())
        .collect();
    for coding in ALL {
        let len = async |level| {
            let body = Compress::with_level(Full::new(Bytes::from(text.clone())), coding, level);
            body.collect().await.unwrap().to_bytes().len()
        };
        assert!(len(9).await < len(1).await, "{coding}");
        assert_eq!((len(0).await, len(u32::MAX).await), (len(1).await, len(9).await), "{coding}");
    }
}

#[tokio::test]
async fn the_identity_is_the_body_itself() {
    let bytes = Bytes::from(noise(1000));
    let mut body = Compress::identity(Full::new(bytes.clone()));
    assert_eq!((body.coding(), body.size_hint().exact()), (None, Some(1000)));
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame.as_ptr(), bytes.as_ptr(), "not copied");
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_compressed_body_may_be_compressed() {
    let text = b"the mill turns ".repeat(10_000);
    let inner = Compress::new(Full::new(Bytes::from(text.clone())), ContentCoding::Gzip);
    let bytes = Compress::new(inner, ContentCoding::Brotli).collect().await.unwrap().to_bytes();
    let gzip = whole(ContentCoding::Brotli, &bytes).unwrap();
    assert!(whole(ContentCoding::Gzip, &gzip).unwrap() == text);
}
