//! When streams are flushed.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Counted {
    writes: AtomicUsize,
    flushes: AtomicUsize,
}

impl Counted {
    fn write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    fn flushes(&self) -> usize {
        self.flushes.load(Ordering::Relaxed)
    }
}

impl Flush for Counted {
    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    fn flush(self: Arc<Self>) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }
}

const LONG: Duration = Duration::from_secs(60);

fn schedule(turn: &Arc<Turn>, stream: &Arc<Counted>, limit: Duration) {
    assert!(turn.schedule(held(stream), limit));
}

fn held(stream: &Arc<Counted>) -> DirtyRef {
    // `Kept`, so that no other thread flushes it.
    DirtyRef::Kept(Arc::clone(stream) as _)
}

async fn turns(n: usize) {
    for _ in 0..n {
        yield_now().await;
    }
}

#[tokio::test]
async fn a_stream_that_is_written_to_once_is_flushed_soon() {
    let turn = Turn::current();
    let stream = Arc::new(Counted::default());
    for round in 1..=3 {
        stream.write();
        schedule(&turn, &stream, LONG);
        turns(4).await;
        assert_eq!(stream.flushes(), round);
    }
}

#[tokio::test]
async fn writes_are_gathered_while_they_keep_coming() {
    let turn = Turn::current();
    let (busy, quiet) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
    schedule(&turn, &busy, LONG);
    schedule(&turn, &quiet, LONG);
    for turn in 0..100 {
        if turn < 50 || turn % 2 == 0 {
            busy.write();
        }
        yield_now().await;
        assert_eq!(busy.flushes(), 0);
    }
    assert_eq!(quiet.flushes(), 1, "one stream does not wait for another");
    turns(4).await;
    assert_eq!(busy.flushes(), 1);
    assert_eq!(quiet.flushes(), 1);
}

#[tokio::test]
async fn nothing_waits_longer_than_the_limit() {
    let turn = Turn::current();
    let stream = Arc::new(Counted::default());
    schedule(&turn, &stream, Duration::ZERO);
    for _ in 0..4 {
        stream.write();
        yield_now().await;
    }
    assert_eq!(stream.flushes(), 1);
}

#[tokio::test]
async fn more_streams_than_one_batch_are_all_flushed() {
    let turn = Turn::current();
    let streams: Vec<_> = (0..FLUSH_BATCH * 3 + 5).map(|_| Arc::new(Counted::default())).collect();
    for stream in &streams {
        schedule(&turn, stream, LONG);
    }
    turns(10).await;
    assert!(streams.iter().all(|stream| stream.flushes() == 1));
}

/// A stream whose flush wakes a task with a waker that panics, for instance.
struct Panics;

impl Flush for Panics {
    fn writes(&self) -> usize {
        0
    }

    fn flush(self: Arc<Self>) {
        panic!("a flush that panics, as it should");
    }
}

#[tokio::test]
async fn a_flush_that_panics_ends_no_other() {
    let turn = Turn::current();
    let stream = Arc::new(Counted::default());
    for round in 1..=3 {
        assert!(turn.schedule(DirtyRef::Kept(Arc::new(Panics)), LONG));
        stream.write();
        schedule(&turn, &stream, LONG);
        turns(6).await;
        assert_eq!(stream.flushes(), round);
    }
}

#[test]
fn a_runtime_that_ends_anywhere_flushes_every_stream() {
    for looks in 0..12 {
        // The runtime checks for its end after every poll of a task.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().event_interval(1).build().unwrap();
        let streams: Vec<_> = (0..FLUSH_BATCH * 3 + 5).map(|_| Arc::new(Counted::default())).collect();
        runtime.block_on(async {
            let turn = Turn::current();
            let mut nothing = Box::pin(crate::ops::chain::Chain::new().nop().run());
            let _ = poll_fn(|cx| Poll::Ready(nothing.as_mut().poll(cx).is_ready())).await;
            for stream in &streams {
                schedule(&turn, stream, LONG);
            }
            // The flusher is polled about once for each of these tasks, which are queued after it.
            for _ in 0..looks {
                tokio::spawn(async {}).await.unwrap();
            }
        });
        drop(runtime);
        let flushes = streams.iter().map(|stream| stream.flushes());
        assert!(flushes.into_iter().all(|flushes| flushes == 1), "after {looks} looks");
    }
}

#[test]
fn a_runtime_that_ends_flushes_once_more_and_then_refuses() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let stream = Arc::new(Counted::default());
    let turn = runtime.block_on(async {
        let turn = Turn::current();
        schedule(&turn, &stream, LONG);
        turn
    });
    drop(runtime);
    assert_eq!(stream.flushes(), 1);
    assert!(!turn.schedule(held(&stream), LONG));
    assert_eq!(Arc::strong_count(&stream), 1);
    // The backstop thread may hold the turn briefly.
    let since = Instant::now();
    while Arc::strong_count(&turn) > 1 {
        assert!(since.elapsed() < Duration::from_secs(30), "the flusher let go");
        std::thread::yield_now();
    }
}
