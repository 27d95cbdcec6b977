//! Many small frames, merged: [`Batch`] around a body of 1000 ready frames.
//!
//! The rivals are the body itself, with 1000 frames, and the collected body, with one frame that is available only
//! after its end.
//!
//! The number of resulting frames is exact and matters most: each one costs its server an encoding and, over HTTP/2
//! from 256 bytes on, a write. The time is that of merging; it must be small compared with a write, which takes
//! microseconds.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use criterion::Throughput;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use millstream::body::Batch;

use crate::common::contest::{Case, Contender, Run, Spent};
use crate::common::noise;
use crate::common::suite::Suite;

const FRAMES: usize = 1000;

/// A body whose frames are all ready.
struct Ready<'a>(std::slice::Iter<'a, Bytes>);

impl Body for Ready<'_> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|bytes| Ok(Frame::data(bytes.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.len() == 0
    }
}

/// Passes every frame of `body` to `taker`. Returns their number. The body must never be pending.
fn drain<B: Body<Data = Bytes, Error = Infallible>>(body: B, mut taker: impl FnMut(Bytes)) -> usize {
    let mut body = pin!(body);
    let mut cx = Context::from_waker(Waker::noop());
    for frames in 0.. {
        match body.as_mut().poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => taker(frame.into_data().expect("data")),
            Poll::Ready(Some(Err(never))) => match never {},
            Poll::Ready(None) => return frames,
            Poll::Pending => panic!("all frames are ready"),
        }
    }
    unreachable!("an endless body")
}

type Way = fn(Ready<'_>, &mut dyn FnMut(Bytes)) -> usize;

const WAYS: [(&str, Way); 3] = [
    ("millstream Batch", |body, taker| drain(Batch::new(body), taker)),
    ("floor, body itself", |body, taker| drain(body, taker)),
    ("collect", |body, taker| {
        let collected = pin!(body.collect());
        match collected.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(collected)) => taker(collected.to_bytes()),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => panic!("all frames are ready"),
        }
        1
    }),
];

/// One way, and the number of resulting frames.
struct Merge<'a> {
    frames: &'a [Bytes],
    way: Way,
    count: usize,
}

impl Run for Merge<'_> {
    fn run(&mut self, operations: u64) -> Spent {
        let len = self.frames[0].len() * FRAMES;
        let mut spent = Spent::default();
        spent.on_this_thread(|| {
            for _ in 0..operations {
                let mut total = 0;
                let count =
                    (self.way)(Ready(black_box(self.frames).iter()), &mut |frame| total += black_box(frame).len());
                assert_eq!((count, total), (self.count, len));
            }
        });
        spent
    }

    fn note(&mut self) -> String {
        format!("{} frames out", self.count)
    }
}

pub(crate) fn run(suite: &mut Suite) {
    for len in [40, 300, 4000] {
        let bytes = Bytes::from(noise(len * FRAMES));
        let frames: Vec<Bytes> = (0..FRAMES).map(|i| bytes.slice(i * len..(i + 1) * len)).collect();
        let title = format!("batch, {FRAMES} frames of {len} B");
        suite.run_micro(&Case::new(&title, "CPU us/body", 1), Throughput::Bytes(bytes.len() as u64), || {
            let contenders = WAYS.map(|(name, way)| {
                let mut out = Vec::with_capacity(bytes.len());
                let count = way(Ready(frames.iter()), &mut |frame| out.extend_from_slice(&frame));
                assert!(out == bytes, "{name}: output differs from input");
                Contender { name, run: Box::new(Merge { frames: &frames, way, count }) }
            });
            contenders.into()
        });
    }
}
