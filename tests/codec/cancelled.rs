//! Cancellation: writer futures dropped after each number of polls, and writers dropped or forgotten in the middle. No
//! accepted byte is lost, none is sent twice, and no memory is kept.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use millstream::codec::Writer;
use tokio::io::AsyncWriteExt;
use tokio::task::yield_now;

use crate::fake::{Act, Fake};
use testkit::http::on_both;
use testkit::noise;

const POLLS: usize = 12;

/// A writer that is not ready in each possible way, between writes of all sizes.
fn moody() -> Fake {
    let acts = [Act::Yield, Act::Take(1), Act::Yield, Act::Take(700), Act::Yield, Act::Take(5000), Act::TakeOne];
    Fake::new(acts.into_iter().cycle().take(200))
}

/// Builds a writer with the policy `which` and a small limit.
fn one_of(fake: &Fake, which: usize) -> Writer<Fake> {
    let builder = Writer::builder(fake.clone()).high_mark(2000);
    match which {
        0 => builder.build(),
        _ => builder.gather_limit(Duration::from_millis(1)).build(),
    }
}

/// Polls `future` up to `polls` times, with other tasks running in between, and drops it.
async fn polled<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Some(done);
        }
        yield_now().await;
    }
    None
}

#[test]
fn futures_that_are_dropped_lose_nothing_and_repeat_nothing() {
    on_both(async || {
        for polls in 0..POLLS {
            for which in 0..2 {
                let fake = moody();
                let mut writer = one_of(&fake, which);
                let bytes = Bytes::from(noise(100_000));
                let mut taken = Vec::new();
                for round in 0..20 {
                    let piece = bytes.slice(round * 1300..round * 1300 + 1 + round * 97);
                    if polled(writer.send(piece.clone()), polls).await.is_some() {
                        taken.extend_from_slice(&piece);
                    }
                    if let Some(n) = polled(writer.write(&piece), polls).await {
                        taken.extend_from_slice(&piece[..n.unwrap()]);
                    }
                    match round % 3 {
                        0 => drop(polled(writer.flush(), polls).await),
                        1 => drop(polled(writer.flushed(), polls).await),
                        _ => {}
                    }
                }
                if polls > 0 {
                    drop(polled(writer.shutdown(), polls / 2).await);
                }
                writer.flushed().await.unwrap();
                assert!(
                    fake.seen().bytes == taken,
                    "after {polls} polls: {} of {}",
                    fake.seen().bytes.len(),
                    taken.len()
                );
                assert!(polls == 0 || !taken.is_empty());
                drop(writer);
                while !fake.is_last() {
                    yield_now().await;
                }
            }
        }
    });
}

#[test]
fn writers_that_are_dropped_in_the_middle_let_go() {
    on_both(async || {
        for polls in 0..POLLS {
            let fake = moody();
            for which in 0..2 {
                let mut writer = one_of(&fake, which);
                let work = async {
                    for _ in 0..10 {
                        writer.send(noise(900).into()).await.unwrap();
                    }
                    writer.flushed().await.unwrap();
                };
                polled(work, polls).await;
            }
            while !fake.is_last() {
                yield_now().await;
            }
        }
    });
}

#[test]
fn writers_that_are_forgotten_disturb_nobody() {
    on_both(async || {
        for polls in 0..POLLS {
            for which in 0..2 {
                let fake = moody();
                let mut writer = one_of(&fake, which);
                polled(writer.send(noise(3000).into()), 1).await;
                {
                    let mut flushed = Box::pin(writer.flushed());
                    polled(flushed.as_mut(), polls).await;
                }
                #[expect(clippy::disallowed_methods, reason = "the test covers forgotten values")]
                std::mem::forget(writer);
                for _ in 0..5 {
                    yield_now().await;
                }
                let sent = fake.seen().bytes.len();
                assert!(noise(3000).starts_with(&fake.seen().bytes), "{sent} bytes");
            }
        }
        let fake = Fake::default();
        let mut writer = Writer::builder(fake.clone()).gather_limit(Duration::from_millis(1)).build();
        writer.write_all(b"others go on").await.unwrap();
        writer.flushed().await.unwrap();
        assert_eq!(fake.seen().bytes, b"others go on");
    });
}
