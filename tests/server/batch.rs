//! `body::Batch` yields the same bytes, trailers and errors as the inner body, in the same order, and adds no wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use millstream::body::Batch;
use proptest::prelude::*;

/// The documented values.
const DEFAULT_LIMIT: usize = 16_375;
const MAX_LIMIT: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Data(Bytes),
    Pending,
    Trailers(u32),
    Error(u32),
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Answer {
    Data(usize),
    Pending,
    Other,
    End,
}

/// A body that follows a script and panics if polled after its end.
#[derive(Debug)]
struct Scripted {
    steps: VecDeque<Step>,
    /// Whether `is_end_stream` reports the end, or always returns `false`, which is allowed.
    tells_end: bool,
    ended: bool,
    log: Rc<RefCell<Vec<Answer>>>,
}

impl Scripted {
    fn new(steps: impl IntoIterator<Item = Step>, tells_end: bool) -> Self {
        Self { steps: steps.into_iter().collect(), tells_end, ended: false, log: Rc::default() }
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = u32;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, u32>>> {
        assert!(!self.ended, "polled after the end");
        let (answer, poll) = match self.steps.pop_front() {
            Some(Step::Data(data)) => (Answer::Data(data.len()), Poll::Ready(Some(Ok(Frame::data(data))))),
            Some(Step::Pending) => (Answer::Pending, Poll::Pending),
            Some(Step::Trailers(n)) => (Answer::Other, Poll::Ready(Some(Ok(Frame::trailers(trailers(n)))))),
            Some(Step::Error(n)) => (Answer::Other, Poll::Ready(Some(Err(n)))),
            None => {
                self.ended = true;
                (Answer::End, Poll::Ready(None))
            }
        };
        self.log.borrow_mut().push(answer);
        poll
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.tells_end && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(
            self.steps.iter().map(|step| if let Step::Data(d) = step { d.len() as u64 } else { 0 }).sum(),
        )
    }
}

fn trailers(n: u32) -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, n.into())])
}

/// Joins adjacent data and drops `Pending`; adapters must not change the result.
fn essence(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let mut out: Vec<Step> = Vec::new();
    for step in steps {
        match (out.last_mut(), step) {
            (_, Step::Pending) => {}
            (Some(Step::Data(before)), Step::Data(data)) => *before = [&before[..], &data[..]].concat().into(),
            (_, step) => out.push(step),
        }
    }
    out.retain(|step| !matches!(step, Step::Data(data) if data.is_empty()));
    out
}

fn poll_once(body: &mut Batch<Scripted>) -> Poll<Option<Step>> {
    let poll = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
    poll.map(|frame| {
        frame.map(|frame| match frame.map(Frame::into_data) {
            Ok(Ok(data)) => Step::Data(data),
            Ok(Err(frame)) => {
                let map = frame.into_trailers().expect("neither data nor trailers");
                Step::Trailers(map[http::header::ETAG].to_str().unwrap().parse().unwrap())
            }
            Err(n) => Step::Error(n),
        })
    })
}

fn drain(mut body: Batch<Scripted>, limit: usize, log: &RefCell<Vec<Answer>>) -> Vec<Step> {
    let mut out = Vec::new();
    loop {
        let (said_end, hint) = (body.is_end_stream(), body.size_hint().exact().expect("the inner hint is exact"));
        log.borrow_mut().clear();
        let polled = poll_once(&mut body);
        let log = log.borrow();
        assert!(log.len() <= 256, "{} polls in one call", log.len());
        match polled {
            Poll::Pending => {
                assert!(!said_end);
                assert_eq!(*log, [Answer::Pending], "`Pending` while data is held");
            }
            Poll::Ready(None) => {
                assert_eq!(hint, 0);
                assert!(body.is_end_stream());
                assert_eq!(poll_once(&mut body), Poll::Ready(None), "the end repeats");
                return out;
            }
            Poll::Ready(Some(step)) => {
                assert!(!said_end, "{step:?} after the end was announced");
                if let Step::Data(data) = &step {
                    let taken = log.iter().filter(|answer| matches!(answer, Answer::Data(_))).count();
                    assert!(data.len() <= limit || taken <= 1, "merged {} bytes, limit {limit}", data.len());
                    assert_eq!(body.size_hint().exact(), Some(hint - data.len() as u64));
                }
                out.push(step);
            }
        }
    }
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..12).prop_map(|data| Step::Data(data.into())),
        2 => Just(Step::Pending),
        1 => any::<u32>().prop_map(Step::Trailers),
        1 => any::<u32>().prop_map(Step::Error),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn nothing_is_changed_but_the_number_of_frames(steps in script(), limit in 0usize..40, tells_end: bool) {
        let inner = Scripted::new(steps.clone(), tells_end);
        let log = Rc::clone(&inner.log);
        let out = drain(Batch::with_limit(inner, limit), limit, &log);

        prop_assert_eq!(essence(out.clone()), essence(steps.clone()));
        let frames = |steps: &[Step]| steps.iter().filter(|step| **step != Step::Pending).count();
        prop_assert!(frames(&out) <= frames(&steps));
    }
}

fn data(pieces: &[&'static [u8]]) -> Vec<Step> {
    pieces.iter().map(|piece| Step::Data(Bytes::from_static(piece))).collect()
}

fn out_of(steps: Vec<Step>, limit: usize) -> Vec<Step> {
    let inner = Scripted::new(steps, true);
    let log = Rc::clone(&inner.log);
    drain(Batch::with_limit(inner, limit), limit, &log)
}

#[test]
fn ready_frames_become_one_and_a_pause_ends_it() {
    let mut steps = data(&[b"ab", b"cd"]);
    steps.push(Step::Pending);
    steps.extend(data(&[b"ef", b"gh"]));
    assert_eq!(out_of(steps, 100), data(&[b"abcd", b"efgh"]));
}

#[test]
fn a_frame_that_does_not_fit_is_kept_for_the_next_poll() {
    assert_eq!(out_of(data(&[b"aaa", b"bbb", b"ccc", b"d"]), 7), data(&[b"aaabbb", b"cccd"]));
}

#[test]
fn trailers_and_errors_come_after_the_data_before_them() {
    for last in [Step::Trailers(7), Step::Error(7)] {
        let steps = [data(&[b"a", b"b"]), vec![last.clone()]].concat();
        assert_eq!(out_of(steps, 100), [data(&[b"ab"]), vec![last]].concat());
    }
}

#[test]
fn a_frame_alone_or_too_large_is_passed_on_without_a_copy() {
    let large = Bytes::from(vec![7; 64]);
    let alone = Bytes::from_static(b"alone");
    for (steps, expected) in [
        (vec![Step::Data(large.clone()), Step::Data(alone.clone())], [&large, &alone]),
        (vec![Step::Data(alone.clone()), Step::Pending, Step::Data(large.clone())], [&alone, &large]),
        (vec![Step::Data(alone.clone()), Step::Data(large.clone())], [&alone, &large]),
        (vec![Step::Data(Bytes::new()), Step::Data(alone.clone()), Step::Data(large.clone())], [&alone, &large]),
    ] {
        let out = out_of(steps, 32);
        for (step, expected) in out.iter().zip(expected) {
            let Step::Data(data) = step else { panic!("{step:?}") };
            assert_eq!((data.as_ptr(), data.len()), (expected.as_ptr(), expected.len()));
        }
        assert_eq!(out.len(), 2);
    }
}

#[test]
fn a_limit_of_zero_merges_nothing_and_a_huge_one_is_cut() {
    assert_eq!(out_of(data(&[b"a", b"b"]), 0), data(&[b"a", b"b"]));

    let kib = Bytes::from(vec![1; 64 << 10]);
    let out = out_of(vec![Step::Data(kib); 40], usize::MAX);
    let lens: Vec<usize> = out.iter().map(|step| if let Step::Data(d) = step { d.len() } else { 0 }).collect();
    assert_eq!(lens, [MAX_LIMIT, MAX_LIMIT, (40 * (64 << 10)) - 2 * MAX_LIMIT]);
}

#[test]
fn a_body_that_is_always_ready_gives_the_thread_back() {
    let inner = Scripted::new(vec![Step::Data(Bytes::new()); 1000], true);
    let log = Rc::clone(&inner.log);
    let mut body = Batch::new(inner);
    assert_eq!(poll_once(&mut body), Poll::Ready(Some(Step::Data(Bytes::new()))));
    assert_eq!(log.borrow().len(), 256);
}

#[test]
fn a_body_that_has_announced_its_end_is_not_asked_again() {
    let inner = Scripted::new(data(&[b"last"]), true);
    let log = Rc::clone(&inner.log);
    let mut body = Batch::new(inner);
    assert!(poll_once(&mut body).is_ready());
    assert_eq!(*log.borrow(), [Answer::Data(4)]);
    assert!(body.is_end_stream(), "hyper writes the end together with the data");
}

#[test]
fn ten_thousand_tokens_become_the_fewest_frames() {
    let token = Bytes::from(vec![b'x'; 300]);
    let out = out_of(vec![Step::Data(token); 10_000], DEFAULT_LIMIT);
    assert_eq!(out.len(), 10_000usize.div_ceil(DEFAULT_LIMIT / 300));
}

#[test]
fn an_inner_hint_that_is_not_exact_keeps_its_bounds() {
    struct Vague;
    impl Body for Vague {
        type Data = Bytes;
        type Error = u32;
        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, u32>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"abc")))))
        }
        fn size_hint(&self) -> SizeHint {
            let mut hint = SizeHint::new();
            hint.set_lower(u64::MAX - 1);
            hint
        }
    }
    // With limit 2, a frame of 3 bytes passes and none is held; with limit 4, one frame is held.
    for (limit, lower) in [(2, u64::MAX - 1), (4, u64::MAX)] {
        let mut body = Batch::with_limit(Vague, limit);
        assert!(Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (lower, None));
    }
}
