//! Unit tests of `wake_task`.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Context;

use super::super::sinks::{AT_ONCE, Frames, Outcome};
use super::*;

#[cfg(millstream_loom)]
mod models;

#[test]
fn a_reader_checks_for_news_under_the_lock() {
    let group = Group::new(None, 0, Beat::new(None, None), SinkList::default());
    let mut member = group.join(None);
    assert_eq!(member.wait(Waker::noop(), || true), Wait::News);
    assert!(lock(&group.readers).list.take().is_empty());
    let is_unlocked = || group.readers.try_lock().is_ok() || !group.waits.load(Ordering::Relaxed);
    assert_eq!(member.wait(Waker::noop(), is_unlocked), Wait::Waits, "a sender could wake in between");
    group.wake();
    assert!(lock(&group.readers).list.take().is_empty());
}

/// The only reader of its group, which counts how often a pass comes to it.
struct Sink {
    member: Option<Member>,
    served: Arc<AtomicUsize>,
}

impl ReaderSink for Sink {
    fn send(&mut self, _: &mut Frames) -> Outcome {
        self.served.fetch_add(1, Relaxed);
        Outcome::Sent
    }

    fn send_comment(&mut self, _: &mut Frames) -> Outcome {
        Outcome::Idle
    }

    fn is_current(&self) -> bool {
        true
    }

    fn is_aged(&self, _: Instant) -> bool {
        self.served.fetch_add(1, Relaxed);
        false
    }
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_between_the_readers_of_many_hubs() {
    const GROUPS: usize = 3 * AT_ONCE + 1;
    let (runtime, period) = (Handle::current().id(), Duration::from_secs(60));
    let beat = Beat { period: Some(period), silence: 2 };
    let wake_task = WakeTask::of(runtime, 0, beat);
    // The test polls the task itself.
    lock(&wake_task.rounds).runs = true;
    let served = Arc::<AtomicUsize>::default();
    let groups: Vec<_> = (0..GROUPS).map(|_| Group::new(Some(runtime), 0, beat, SinkList::default())).collect();
    let attached = groups.iter().map(|group| {
        let mut member = group.join(None);
        assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits);
        let sink = Box::new(Sink { member: Some(member), served: Arc::clone(&served) });
        Member::attach(sink, |sink| sink.member.as_mut(), Waker::noop()).ok().unwrap()
    });
    let attached: Vec<_> = attached.collect();
    let mut round = Round { wake_task: Arc::clone(&wake_task), to_wake: HashMap::new(), ended: false };
    let mut run = Box::pin(round.run());
    let mut turns = || -> Vec<usize> {
        let turn = || {
            assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            Some(served.swap(0, Relaxed)).filter(|&served| served > 0)
        };
        std::iter::from_fn(turn).collect()
    };
    assert!(turns().is_empty(), "no news");
    groups.iter().for_each(Group::wake);
    assert_eq!(turns(), [AT_ONCE, AT_ONCE, AT_ONCE, 1]);
    assert!(groups.iter().all(|group| group.waits.load(Ordering::Relaxed)));
    tokio::time::advance(period).await;
    assert_eq!(turns(), [AT_ONCE - 1, AT_ONCE, AT_ONCE, 2], "the rest of a turn is used");
    // An end between two turns returns all to their tasks.
    groups.iter().for_each(Group::wake);
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(run);
    drop(round);
    assert!(attached.iter().all(Attached::has_returned));
}

/// A reader whose hub gets further events while it is served, from another thread for instance.
struct Busy {
    member: Option<Member>,
    group: Arc<Group>,
    served: Arc<AtomicUsize>,
    aged: Arc<AtomicUsize>,
}

impl ReaderSink for Busy {
    fn send(&mut self, _: &mut Frames) -> Outcome {
        assert!(self.served.fetch_add(1, Relaxed) < 10 * AT_ONCE, "no other task runs");
        self.group.wake();
        Outcome::Sent
    }

    fn send_comment(&mut self, _: &mut Frames) -> Outcome {
        Outcome::Idle
    }

    fn is_current(&self) -> bool {
        true
    }

    fn is_aged(&self, _: Instant) -> bool {
        self.aged.fetch_add(1, Relaxed);
        false
    }
}

#[tokio::test(start_paused = true)]
async fn other_tasks_and_ticks_have_their_turn_although_there_are_always_news() {
    let (runtime, period) = (Handle::current().id(), Duration::from_secs(60));
    let beat = Beat { period: Some(period), silence: 2 };
    let wake_task = WakeTask::of(runtime, 0, beat);
    // The test polls the task itself.
    lock(&wake_task.rounds).runs = true;
    let (served, aged) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let group = Group::new(Some(runtime), 0, beat, SinkList::default());
    let mut member = group.join(None);
    assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits);
    let busy =
        Busy { member: Some(member), group: Arc::clone(&group), served: Arc::clone(&served), aged: Arc::clone(&aged) };
    let _attached = Member::attach(Box::new(busy), |busy| busy.member.as_mut(), Waker::noop()).ok().unwrap();
    let mut round = Round { wake_task: Arc::clone(&wake_task), to_wake: HashMap::new(), ended: false };
    let mut run = Box::pin(round.run());
    let mut turn = || {
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        served.swap(0, Relaxed)
    };
    assert_eq!(turn(), 0);
    group.wake();
    assert_eq!((turn(), turn(), turn()), (AT_ONCE, AT_ONCE, AT_ONCE));
    assert_eq!(aged.load(Relaxed), 0);
    tokio::time::advance(period).await;
    turn();
    assert_eq!(aged.load(Relaxed), 1, "a tick");
}
