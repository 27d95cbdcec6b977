//! Dropped chains, and chains that fail between open and close: nothing stays open.

use std::fs;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use millstream::fs::chain::Chain;
use millstream::fs::chain::StepOutcome::{Done, Skipped};
use rustix::io::Errno;

use super::both::{both, failed, new_file, open_files, reading};
use testkit::HANGS;

use testkit::alone;

/// Polls a future at most `polls` times, each time it is woken, then drops it. Returns whether it ended.
async fn polled(future: impl Future, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    let ended = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(HANGS, ended).await.expect("it is woken")
}

#[test]
fn a_chain_dropped_after_any_number_of_polls_leaves_nothing_open() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        fs::write(place.path("a"), "a").unwrap();
        let two = || Chain::new().open(place.path("a"), reading()).open(place.path("a"), reading()).read(1);
        place.run(two()).await;
        let before = open_files();
        let mut polls = 0;
        while !polled(two().run(), polls).await {
            place.opened(before).await;
            polls += 1;
        }
        assert!(polls > 0);
    });
}

#[test]
fn a_chain_dropped_anywhere_on_its_way_to_a_step_that_waits_for_ever_leaves_nothing_open() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let reader = Arc::new(reader);
        // Kernel threads open the files, so the chain is at another step each time.
        let stalled = || {
            let chain = Chain::new().open(place.path("a"), new_file().create_new(false).create(true));
            chain.open(place.path("b"), new_file().create_new(false).create(true)).on(reader.clone()).read(1)
        };
        place.run(Chain::new().nop()).await;
        let before = open_files();
        // A job checks ten times a second whether it was cancelled.
        for turns in (0..100).step_by(if place.has_ring() { 1 } else { 10 }) {
            let running = tokio::spawn(stalled().run());
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            running.abort();
            let _ = running.await;
            place.opened(before).await;
        }
        drop(writer);
    });
}

#[test]
fn a_chain_dropped_while_it_waits_leaves_nothing_open_and_the_runtime_ends() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        fs::write(place.path("a"), "a").unwrap();
        place.run(Chain::new().open(place.path("a"), reading()).read(1)).await;
        let before = open_files();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let reader = Arc::new(reader);
        let stalled = Chain::new().open(place.path("a"), reading()).on(reader.clone()).read(1).unlink(place.path("a"));
        let running = tokio::spawn(stalled.run());
        // The chain holds one more open file.
        place.opened(before + 3).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        place.opened(before + 2).await;
        place.until("the reader is released", || Arc::strong_count(&reader) == 1).await;
        drop(writer);
        assert!(place.path("a").exists(), "a step ran after a failed one");
    });
}

#[test]
fn what_was_open_when_a_chain_failed_is_closed() {
    if alone::ran_in_child() {
        return;
    }
    let outcomes = both(async |place| {
        fs::write(place.path("a"), "a").unwrap();
        place.run(Chain::new().open(place.path("a"), reading()).read(1)).await;
        let before = open_files();
        let mut outcomes = Vec::new();
        let open = || Chain::new().open(place.path("a"), reading()).open(place.path("a"), reading());
        for chain in [open().write("x"), open().read(2).nop(), open().open(place.path("missing"), reading())] {
            outcomes.push(place.outcomes(chain.close()).await);
            place.opened(before).await;
        }
        outcomes
    });
    assert_eq!(outcomes[0][2..], [failed(Errno::BADF), Skipped]);
    assert_eq!(outcomes[2][2..], [failed(Errno::NOENT), Skipped]);
}

#[test]
fn no_place_in_the_table_of_the_ring_is_lost() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        fs::write(place.path("a"), "a").unwrap();
        let open = || Chain::new().open(place.path("a"), reading());
        // Each of these leaves its file for the ring to close, closes it itself, or is dropped; a ring has 256 places.
        for round in 0..300 {
            assert_eq!(place.outcomes(open().write("x")).await, [Done(0), failed(Errno::BADF)]);
            assert_eq!(place.outcomes(open().close()).await, [Done(0), Done(0)]);
            polled(open().read(1).run(), round % 3).await;
        }
        let all: Vec<_> =
            (0..100).map(|_| tokio::spawn(open().open(place.path("a"), reading()).read(1).run())).collect();
        for one in all {
            assert!(tokio::time::timeout(HANGS, one).await.expect("it ends").unwrap().is_ok());
        }
    });
}

#[test]
fn a_runtime_ends_though_chains_wait() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (reader, writer) = (Arc::new(reader), Arc::new(writer));
        // The chain itself keeps the pipe open, so only the end of the runtime ends its wait.
        let chain = Chain::new().open(place.path("new"), new_file()).on(reader).read(1).on(writer).write("x");
        tokio::spawn(chain.run());
        place.until("the chain has begun", || place.path("new").exists()).await;
    });
}
