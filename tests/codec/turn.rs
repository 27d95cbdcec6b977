//! Writers that send at the end of a runtime turn: gathered, without their task, over every kind of inner writer.

use std::io::ErrorKind;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use millstream::codec::Writer;
use tokio::io::AsyncWriteExt;
use tokio::task::yield_now;
use tokio_util::codec::{FramedWrite, LinesCodec};

use crate::fake::{Act, Fake};
use testkit::http::{on_both, watched};
use testkit::noise;

const LONG: Duration = Duration::from_secs(60);

fn writer(fake: &Fake) -> Writer<Fake> {
    Writer::builder(fake.clone()).gather_limit(LONG).build()
}

/// Waits for a condition without a time limit; the watchdog ends a test that hangs.
async fn until(what: impl Fn() -> bool) {
    while !what() {
        yield_now().await;
    }
}

#[test]
fn many_small_writes_are_one() {
    on_both(async || {
        let fake = Fake::default();
        let mut writer = writer(&fake);
        for _ in 0..100 {
            writer.write_all(b"a little ").await.unwrap();
            writer.flush().await.unwrap();
        }
        assert_eq!(fake.seen().polls, 0);
        until(|| fake.seen().bytes.len() == 900).await;
        assert_gathered(&fake);
        until(|| writer.queued() == 0).await;
    });
}

/// Asserts that the hundred writes are one call, or few if another worker flushed while this one was not scheduled.
fn assert_gathered(fake: &Fake) {
    let calls = fake.seen().calls.len();
    let most = match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::CurrentThread => 1,
        _ => 50,
    };
    assert!((1..=most).contains(&calls), "{calls} calls");
}

#[test]
fn messages_that_are_sent_one_by_one_are_one_write() {
    on_both(async || {
        use futures_util::SinkExt;
        let fake = Fake::default();
        let mut lines = FramedWrite::new(writer(&fake), LinesCodec::new());
        for _ in 0..100 {
            lines.send("a line").await.unwrap();
        }
        until(|| fake.seen().bytes.len() == 700).await;
        assert_gathered(&fake);
    });
}

#[test]
fn bytes_leave_while_their_task_sleeps() {
    on_both(async || {
        // Each kind of not being ready, before a write and in the middle.
        let fake = Fake::new([Act::Yield, Act::Take(5), Act::Block, Act::Take(1), Act::Yield]);
        let mut writer = writer(&fake);
        writer.write_all(&noise(5000)).await.unwrap();
        until(|| fake.seen().polls == 3).await;
        for _ in 0..20 {
            yield_now().await;
        }
        assert_eq!(fake.seen().polls, 3, "no poll before a wake-up");
        fake.wake();
        until(|| fake.seen().flushes > 0).await;
        assert!(fake.seen().bytes == noise(5000));
        assert_eq!(writer.queued(), 0);
    });
}

#[test]
fn writers_wait_and_are_woken() {
    on_both(async || {
        let fake = Fake::new([Act::Take(100), Act::Block]);
        let mut writer = Writer::builder(fake.clone()).high_mark(1000).gather_limit(LONG).build();
        let writing = tokio::spawn(async move {
            writer.write_all(&noise(10_000)).await.unwrap();
            writer.flushed().await.unwrap();
            assert_eq!(writer.queued(), 0);
            writer
        });
        until(|| fake.seen().polls == 2).await;
        fake.wake();
        drop(writing.await.unwrap());
        assert!(fake.seen().bytes == noise(10_000));
    });
}

#[test]
fn an_error_at_the_end_of_the_turn_is_told_by_the_next_call() {
    on_both(async || {
        for act in [Act::Reset, Act::Nothing, Act::Claim, Act::Panic] {
            let fake = Fake::new([Act::Take(1), act.clone()]);
            let mut writer = writer(&fake);
            writer.write_all(b"lost").await.unwrap();
            until(|| fake.seen().polls == 2 && writer.queued() == 0).await;
            let kind = writer.flush().await.unwrap_err().kind();
            let expected = match act {
                Act::Reset => ErrorKind::ConnectionReset,
                Act::Nothing => ErrorKind::WriteZero,
                Act::Claim => ErrorKind::InvalidData,
                _ => ErrorKind::Other,
            };
            assert_eq!(kind, expected, "{act:?}");
            assert_eq!(writer.write(b"more").await.unwrap_err().kind(), expected);
            assert_eq!(writer.shutdown().await.unwrap_err().kind(), expected);
            assert_eq!(fake.seen().shutdowns, 0, "no shutdown after an incomplete write");
        }
        // The flusher still serves other writers.
        let fake = Fake::default();
        let mut writer = writer(&fake);
        writer.write_all(b"fine").await.unwrap();
        until(|| fake.seen().flushes > 0).await;
        assert_eq!(fake.seen().bytes, b"fine");
    });
}

#[test]
fn one_that_waits_learns_of_the_error() {
    on_both(async || {
        let fake = Fake::new([Act::Block, Act::Reset]);
        let mut writer = writer(&fake);
        let waiting = tokio::spawn(async move {
            writer.write_all(&noise(10)).await.unwrap();
            writer.flushed().await.unwrap_err().kind()
        });
        until(|| fake.seen().polls == 1).await;
        fake.wake();
        assert_eq!(waiting.await.unwrap(), ErrorKind::ConnectionReset);
        until(|| fake.is_last()).await;
    });
}

#[test]
fn shutdown_drains_and_then_waits_for_the_inner_writer() {
    on_both(async || {
        let fake = Fake::new([Act::Yield, Act::Take(3), Act::Yield]);
        let mut writer = writer(&fake);
        writer.write_all(b"all of it").await.unwrap();
        writer.shutdown().await.unwrap();
        let seen = fake.seen();
        assert_eq!((&seen.bytes[..], seen.shutdowns), (&b"all of it"[..], 2));
    });
}

#[test]
fn a_dropped_writer_still_leaves_and_then_everything_is_gone() {
    on_both(async || {
        let fake = Fake::default();
        let mut dropped = writer(&fake);
        dropped.write_all(b"last words").await.unwrap();
        drop(dropped);
        until(|| fake.is_last()).await;
        assert_eq!(fake.seen().bytes, b"last words");

        let fake = Fake::always(Act::Block);
        let mut dropped = writer(&fake);
        dropped.send(noise(100_000).into()).await.unwrap();
        until(|| fake.seen().polls > 0).await;
        drop(dropped);
        until(|| fake.is_last()).await;
        fake.wake();
    });
}

#[test]
fn a_waker_that_gives_up_does_not_take_the_bytes_along() {
    on_both(async || {
        let fake = Fake::new([Act::Block]);
        let mut writer = writer(&fake);
        writer.write_all(b"patience").await.unwrap();
        {
            let mut flushed = std::pin::pin!(writer.flushed());
            assert!(flushed.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(fake.seen().polls, 1);
        // Woken before anything else: the future above is dropped, and its waker has no task.
        fake.wake();
        until(|| fake.seen().flushes > 0).await;
        assert_eq!(fake.seen().bytes, b"patience");
    });
}

#[test]
fn a_runtime_that_ends_writes_what_waits() {
    watched(|| {
        for (act, left) in [(Act::Take(usize::MAX), 9), (Act::Yield, 0), (Act::Block, 0)] {
            for asleep in [false, true] {
                let fake = Fake::always(act.clone());
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let mut writer = runtime.block_on(async {
                    let mut writer = writer(&fake);
                    if asleep {
                        until(|| true).await;
                        for _ in 0..10 {
                            yield_now().await;
                        }
                    }
                    writer.push(Bytes::from_static(b"last word")).unwrap();
                    writer
                });
                drop(runtime);
                assert_eq!(fake.seen().bytes.len(), left, "{act:?}");
                // Without a runtime it writes at once, if the inner writer is ready.
                writer.push(Bytes::from_static(b"and more")).unwrap();
                let mut shut = std::pin::pin!(writer.shutdown());
                let mut cx = Context::from_waker(Waker::noop());
                let polled = [shut.as_mut().poll(&mut cx), shut.as_mut().poll(&mut cx)];
                match left {
                    0 => assert!(matches!(polled, [Poll::Pending, Poll::Pending]), "{act:?}"),
                    _ => {
                        assert!(matches!(polled, [_, Poll::Ready(Ok(()))]));
                        assert_eq!(fake.seen().bytes, b"last wordand more");
                    }
                }
            }
        }
    });
}
