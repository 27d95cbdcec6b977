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

const PERIOD: Duration = Duration::from_secs(60);

/// The only reader of its group, which counts how often a pass comes to it.
struct Sink {
    member: Option<Member>,
    sent: Arc<AtomicUsize>,
    ticks: Arc<AtomicUsize>,
    /// Gets further events while they are sent, from another thread for instance.
    busy: Option<Arc<Group>>,
}

impl ReaderSink for Sink {
    fn send(&mut self, _: &mut Frames) -> Outcome {
        assert!(self.sent.fetch_add(1, Relaxed) < 10 * AT_ONCE, "no other task runs");
        self.busy.iter().for_each(|group| group.wake());
        Outcome::Sent
    }

    fn send_comment(&mut self, _: &mut Frames) -> Outcome {
        Outcome::Idle
    }

    fn is_current(&self) -> bool {
        true
    }

    fn is_aged(&self, _: Instant) -> bool {
        self.ticks.fetch_add(1, Relaxed);
        false
    }
}

/// Groups of a wake task that the test polls itself.
struct Served {
    groups: Vec<Arc<Group>>,
    attached: Vec<Attached>,
    sent: Arc<AtomicUsize>,
    ticks: Arc<AtomicUsize>,
    round: Round,
}

impl Served {
    fn new(groups: usize, is_busy: bool) -> Self {
        let (runtime, beat) = (Handle::current().id(), Beat { period: Some(PERIOD), silence: 2 });
        let wake_task = WakeTask::of(runtime, 0, beat);
        lock(&wake_task.rounds).runs = true;
        let (sent, ticks) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let groups: Vec<_> = (0..groups).map(|_| Group::new(Some(runtime), 0, beat, SinkList::default())).collect();
        let attach = |group: &Arc<Group>| {
            let mut member = group.join(None);
            assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits);
            let busy = is_busy.then(|| Arc::clone(group));
            let sink = Sink { member: Some(member), sent: Arc::clone(&sent), ticks: Arc::clone(&ticks), busy };
            Member::attach(Box::new(sink), |sink| sink.member.as_mut(), Waker::noop()).ok().unwrap()
        };
        let attached = groups.iter().map(attach).collect();
        Self { groups, attached, sent, ticks, round: Round { wake_task, to_wake: HashMap::new(), ended: false } }
    }
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_between_the_readers_of_many_hubs() {
    let Served { groups, attached, sent, ticks, mut round } = Served::new(3 * AT_ONCE + 1, false);
    let mut run = Box::pin(round.run());
    let mut turns = || -> Vec<usize> {
        let turn = || {
            assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            Some(sent.swap(0, Relaxed) + ticks.swap(0, Relaxed)).filter(|&served| served > 0)
        };
        std::iter::from_fn(turn).collect()
    };
    assert!(turns().is_empty(), "no news");
    groups.iter().for_each(Group::wake);
    assert_eq!(turns(), [AT_ONCE, AT_ONCE, AT_ONCE, 1]);
    assert!(groups.iter().all(|group| group.waits.load(Ordering::Relaxed)));
    tokio::time::advance(PERIOD).await;
    assert_eq!(turns(), [AT_ONCE - 1, AT_ONCE, AT_ONCE, 2], "the rest of a turn is used");
    // An end between two turns returns all to their tasks.
    groups.iter().for_each(Group::wake);
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(run);
    drop(round);
    assert!(attached.iter().all(Attached::has_returned));
}

#[tokio::test(start_paused = true)]
async fn other_tasks_and_ticks_have_their_turn_although_there_are_always_news() {
    let Served { groups, attached: _attached, sent, ticks, mut round } = Served::new(1, true);
    let mut run = Box::pin(round.run());
    let mut turn = || {
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        sent.swap(0, Relaxed)
    };
    assert_eq!(turn(), 0);
    groups[0].wake();
    assert_eq!((turn(), turn(), turn()), (AT_ONCE, AT_ONCE, AT_ONCE));
    assert_eq!(ticks.load(Relaxed), 0);
    tokio::time::advance(PERIOD).await;
    turn();
    assert_eq!(ticks.load(Relaxed), 1);
}
