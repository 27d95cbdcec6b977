//! The memory of a compressed body.

use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};
use millstream::body::{Compress, ContentCoding};

use crate::decode::ALL;
use testkit::{child, noise};

const BODIES: usize = 16;

/// Returns the resident memory of this process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Data that fills every table of an encoder.
fn data() -> Vec<Bytes> {
    let text = |n: usize| format!("{{\"id\":{n},\"name\":\"mill {}\",\"level\":{}}}\n", n % 31, n * 7919 % 1009);
    let text: Vec<u8> = (0..40_000).flat_map(|n| text(n).into_bytes()).collect();
    let mut all: Vec<_> = text.chunks(32 << 10).map(Bytes::copy_from_slice).collect();
    all.push(noise(1 << 20).into());
    all
}

/// Returns how much a body holds in KiB after it has compressed all data and waits.
fn held(coding: ContentCoding, level: Option<u32>, data: &[Bytes]) -> usize {
    let (mut bodies, mut before) = (Vec::new(), 0);
    for n in 0..=BODIES {
        // The first one also makes what all share.
        if n == 1 {
            before = resident();
        }
        let mut next = data.iter().cloned();
        let frames = futures_util::stream::poll_fn(move |_| match next.next() {
            Some(data) => Poll::Ready(Some(Ok::<_, std::convert::Infallible>(Frame::data(data)))),
            None => Poll::Pending,
        });
        let body = StreamBody::new(frames);
        let mut body = Box::pin(match level {
            Some(level) => Compress::with_level(body, coding, level),
            None => Compress::new(body, coding),
        });
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        // It yields between its steps; twice in a row it is pending only when it waits.
        let mut pending = 0;
        while pending < 2 {
            pending = if body.as_mut().poll_frame(&mut cx).is_pending() { pending + 1 } else { 0 };
        }
        bodies.push(body);
    }
    resident().saturating_sub(before) / BODIES
}

#[test]
fn bodies_hold_what_the_docs_say() {
    let Some(task) = child::task() else {
        for coding in ALL {
            for level in ["", "1", "4", "5", "9"] {
                child::run(&mut child::command("memory::bodies_hold_what_the_docs_say", &format!("{coding} {level}")));
            }
        }
        return;
    };
    let (coding, level) = task.split_once(' ').unwrap();
    let coding = ALL.into_iter().find(|known| known.name() == coding).unwrap();
    let data = data();
    let held = held(coding, level.parse().ok(), &data);
    println!("{coding} at level {level:?}: {held} KiB");
    let most = match (coding, level) {
        (ContentCoding::Gzip, "") => 320,
        (ContentCoding::Gzip, _) => 360,
        (ContentCoding::Brotli, "") => 1843,
        (ContentCoding::Brotli, _) => 3584,
        (_, "") => 921,
        (_, _) => 1228,
    };
    assert!((16..=most).contains(&held), "{held} KiB");
}

#[test]
fn an_encoder_lives_from_the_first_data_to_the_end() {
    let body = Compress::new(
        StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>()),
        ContentCoding::Brotli,
    );
    let mut body = pin!(body);
    let counted = allocation_counter::measure(|| {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(body.as_mut().poll_frame(&mut cx).is_pending());
    });
    // At most the output of the thread.
    assert!(counted.bytes_max <= 17 << 10, "{counted:?}");
}
