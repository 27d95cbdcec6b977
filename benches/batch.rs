//! Many small frames, merged: [`Batch`] around a body that has 1000 frames ready.
//!
//! Beside it the body itself, which gives 1000 frames, and the body collected, which gives one and only after its end.
//!
//! **Look at** the frames that come out, printed after each case: they are exact, and each costs its server an encoding
//! and, over HTTP/2 from 256 bytes on, a write. The time shown is only what merging itself costs; it is to be small
//! beside a write, which takes microseconds. **Noise**: single-digit percentages.

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use millstream::body::Batch;

mod common;
use common::noise;

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

/// Gives every frame of `body` to `taker`; says how many there were. Nothing may have to wait.
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
    unreachable!("a body without end")
}

type Way = fn(Ready<'_>, &mut dyn FnMut(Bytes)) -> usize;

/// The ways to send such a body, by name.
const WAYS: [(&str, Way); 3] = [
    ("millstream Batch", |body, taker| drain(Batch::new(body), taker)),
    ("body itself", |body, taker| drain(body, taker)),
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

fn main() {
    let mut criterion = Criterion::default().without_plots().warm_up_time(Duration::from_secs(1)).configure_from_args();
    for len in [40, 300, 4000] {
        let bytes = Bytes::from(noise(len * FRAMES));
        let frames: Vec<Bytes> = (0..FRAMES).map(|i| bytes.slice(i * len..(i + 1) * len)).collect();
        let mut group = criterion.benchmark_group(format!("batch/{FRAMES} frames of {len} B"));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        for (name, way) in WAYS {
            let mut counted = None;
            group.bench_function(name, |bencher| {
                let mut out = Vec::with_capacity(bytes.len());
                let count = way(Ready(frames.iter()), &mut |frame| out.extend_from_slice(&frame));
                assert!(out == bytes, "{name}: other bytes came out than went in");
                counted = Some(count);
                bencher.iter(|| {
                    let mut total = 0;
                    let again = way(Ready(black_box(&frames).iter()), &mut |frame| total += black_box(frame).len());
                    assert_eq!((again, total), (count, bytes.len()));
                });
            });
            if let Some(count) = counted {
                println!("  {name}: {count} frames out for {FRAMES} in");
            }
        }
        group.finish();
    }
    criterion.final_summary();
}
