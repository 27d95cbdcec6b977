//! Unit tests of `backstop`.

use super::super::dirty::Flush;
use super::*;
use std::sync::mpsc;

#[test]
fn late_is_later_than_limit_and_turns() {
    let ms = Duration::from_millis;
    assert!(is_late(ms(1), ms(0), ms(0)));
    assert!(!is_late(Duration::from_micros(999), ms(0), ms(0)));
    assert!(!is_late(ms(5), ms(1), ms(5)));
    assert!(is_late(ms(6), ms(1), ms(5)));
    assert!(!is_late(ms(59_999), ms(60_000), ms(0)));
    assert!(!is_late(ms(59_999), Duration::MAX, ms(1)), "no limit at all");
}

struct Notifier(mpsc::Sender<thread::ThreadId>);

impl Flush for Notifier {
    fn writes(&self) -> usize {
        0
    }

    fn flush(self: Arc<Self>) {
        let _ = self.0.send(thread::current().id());
    }
}

fn notified(turn: &Arc<Turn>, limit: Duration, kept: bool) -> (Arc<dyn Flush>, mpsc::Receiver<thread::ThreadId>) {
    let (sender, wait) = mpsc::channel();
    let stream: Arc<dyn Flush> = Arc::new(Notifier(sender));
    let held = if kept { DirtyRef::Kept(Arc::clone(&stream)) } else { DirtyRef::Weak(Arc::downgrade(&stream)) };
    assert!(turn.schedule(held, limit));
    (stream, wait)
}

const SHORT: Duration = Duration::from_millis(1);
const HANGS: Duration = Duration::from_secs(30);

#[test]
fn a_runtime_that_is_not_driven_is_stood_in_for_again_and_again() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let turn = runtime.block_on(async { Turn::current() });
    for _ in 0..3 {
        let (_stream, wait) = notified(&turn, SHORT, false);
        assert_ne!(wait.recv_timeout(HANGS), Ok(thread::current().id()));
    }
}

#[test]
fn streams_taken_by_the_flusher_are_flushed_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let turn = Turn::current();
        for (looks, limit) in [(0, SHORT), (1, SHORT), (0, Duration::ZERO)] {
            let (_stream, wait) = notified(&turn, limit, false);
            for _ in 0..looks {
                tokio::task::yield_now().await;
            }
            assert!(wait.recv_timeout(HANGS).is_ok());
        }
    });
}

#[test]
fn other_writers_and_streams_in_time_are_not_flushed() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let turn = runtime.block_on(async { Turn::current() });
    let (_kept, kept) = notified(&turn, SHORT, true);
    let (_patient, patient) = notified(&turn, HANGS * 2, false);
    let (_late, late) = notified(&turn, SHORT, false);
    assert!(late.recv_timeout(HANGS).is_ok(), "the late stream was not found");
    assert!(kept.try_recv().is_err() && patient.try_recv().is_err());
    runtime.block_on(async {
        for _ in 0..6 {
            tokio::task::yield_now().await;
        }
    });
    for wait in [kept, patient] {
        assert_eq!(wait.try_recv(), Ok(thread::current().id()));
    }
}
