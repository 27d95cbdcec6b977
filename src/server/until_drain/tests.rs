//! Unit tests of `until_drain`.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use bytes::Bytes;

use super::*;

/// A body of ready frames, or one that waits.
struct Endless {
    is_ready: bool,
    len: Option<u64>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_ready { Poll::Ready(Some(Ok(Frame::data(Bytes::from("x"))))) } else { Poll::Pending }
    }

    fn size_hint(&self) -> SizeHint {
        self.len.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn response(is_ready: bool, kind: &'static str) -> Response<UntilDrain<Endless>> {
    let response = Response::builder().header("content-type", kind);
    until_drain(response.body(Endless { is_ready, len: None }).unwrap())
}

fn poll(response: &mut Response<UntilDrain<Endless>>) -> Poll<Option<Frame<Bytes>>> {
    let frame = Pin::new(response.body_mut()).poll_frame(&mut Context::from_waker(Waker::noop()));
    frame.map(|frame| frame.map(|frame| frame.unwrap()))
}

fn drain(response: &Response<UntilDrain<Endless>>) {
    response.extensions().get::<GracefulClose>().expect("it can end").end();
}

#[test]
fn a_body_that_waits_is_woken_and_ends() {
    let mut events = response(false, "text/event-stream; charset=utf-8");
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let pending = Pin::new(events.body_mut()).poll_frame(&mut Context::from_waker(&waker));
    assert!(pending.is_pending() && !events.body().is_end_stream());
    drain(&events);
    assert!(woken.0.load(Ordering::Relaxed));
    assert!(matches!(poll(&mut events), Poll::Ready(None)));
    assert!(events.body().is_end_stream());

    let mut grpc = response(false, "application/grpc+proto");
    assert!(poll(&mut grpc).is_pending());
    drain(&grpc);
    let Poll::Ready(Some(frame)) = poll(&mut grpc) else { panic!("no trailers") };
    assert_eq!(frame.into_trailers().unwrap()["grpc-status"], "14");
    assert!(matches!(poll(&mut grpc), Poll::Ready(None)));
}

#[test]
fn frames_that_are_ready_follow_the_signal_but_not_for_ever() {
    let mut events = response(true, "text/event-stream");
    for _ in 0..1000 {
        assert!(matches!(poll(&mut events), Poll::Ready(Some(_))));
    }
    drain(&events);
    let last = std::iter::from_fn(|| match poll(&mut events) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("it waits"),
    });
    assert_eq!(last.take(1000).count(), LAST_FRAMES as usize);
}

#[test]
fn other_responses_are_unchanged() {
    let is_changed = |response: &Response<UntilDrain<Endless>>| response.body().end.is_some();
    assert!(is_changed(&response(true, "text/event-stream")));
    for kind in ["text/plain", "application/json", "application/grpc-web+proto"] {
        assert!(!is_changed(&response(true, kind)), "{kind}");
    }
    let events = || Response::builder().header("content-type", "text/event-stream");
    let known = until_drain(events().body(Endless { is_ready: true, len: Some(3) }).unwrap());
    assert!(!is_changed(&known) && known.body().size_hint().exact() == Some(3));
    let gzip = events().header("content-encoding", "gzip").body(Endless { is_ready: true, len: None });
    assert!(!is_changed(&until_drain(gzip.unwrap())));
    let own = events().extension(GracefulClose::new(|| ())).body(Endless { is_ready: true, len: None });
    assert!(!is_changed(&until_drain(own.unwrap())));
}
