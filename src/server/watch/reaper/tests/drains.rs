//! When endless responses are told to end, by a drain or by the age of their connections.

use super::*;
use crate::body::GracefulClose;
use crate::spread::{Draws, Spread};

/// Returns the largest number of `times` within a tenth of a second.
fn most_at_once(mut times: Vec<Instant>) -> usize {
    times.sort_unstable();
    let within = |from: usize| times[from..].partition_point(|&time| time < times[from] + Duration::from_millis(100));
    (0..times.len()).map(within).max().unwrap_or(0)
}

/// Drains connections with as many endless responses each, which end when they are told. Returns the instants of the ends,
/// and the times at which their clients come back, since the signal, and the result of the reaper.
async fn ends(limits: Limits, readers: &[usize], patience: Duration) -> (Vec<Instant>, Vec<Instant>, Drained) {
    let (shared, retries) = (shared(limits), Draws::new(Spread::RETURN));
    let reaper = tokio::spawn(reaper(Arc::clone(&shared)));
    let (ends, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    for &readers in readers {
        let case = empty_case();
        case.conn_state.set_protocol(if readers > 1 { Protocol::Two } else { Protocol::One });
        let running = shared.enter(&case.conn_state);
        let mut left = Vec::new();
        for _ in 0..readers {
            case.conn_state.requests.begin();
            let told = Arc::new(Notify::new());
            let notifier = Arc::clone(&told);
            let registered = case.conn_state.register_ending(GracefulClose::new(move || notifier.notify_one()));
            let (ends, conn_state) = (Arc::clone(&ends), Arc::clone(&case.conn_state));
            left.push(tokio::spawn(async move {
                told.notified().await;
                lock(&ends).push(Instant::now());
                drop(registered);
                conn_state.requests.end();
            }));
        }
        tasks.push(tokio::spawn(async move {
            for left in left {
                left.await.unwrap();
            }
            drop((running, case));
        }));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    shared.drain(patience);
    let drained = reaper.await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let ends = std::mem::take(&mut *lock(&ends));
    let back = ends.iter().map(|&end| end + retries.draw()).collect();
    (ends, back, drained)
}

/// For any draws, the ends and the reconnects of a drain are spread.
#[tokio::test(start_paused = true)]
async fn a_thousand_readers_end_and_come_back_one_after_another() {
    let patience = Duration::from_secs(10);
    // Over HTTP/1, and in a few connections of HTTP/2 behind a proxy.
    for readers in [vec![1; 1000], vec![50; 20]] {
        for _ in 0..4 {
            let (ends, back, drained) = ends(Limits::default(), &readers, patience).await;
            assert_eq!((ends.len(), drained.notified, drained.aborted), (1000, readers.len(), 0), "{drained:?}");
            assert!(drained.duration <= patience * 4 / 5 + TICK, "{drained:?}");
            let most = (most_at_once(ends), most_at_once(back));
            assert!(most.0 <= 30 && most.1 <= 30, "{most:?} of 1000 in 100 ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn few_readers_delay_no_drain_and_a_spread_of_zero_tells_all_at_once() {
    let patience = Duration::from_secs(10);
    let (_, _, drained) = ends(Limits::default(), &[1; 3], patience).await;
    assert!(drained.duration <= Duration::from_millis(40), "{drained:?}");
    let at_once = Limits::default().drain_spread(Duration::ZERO);
    let (ends, _, drained) = ends(at_once, &[1; 1000], patience).await;
    assert_eq!((most_at_once(ends), drained.duration), (1000, Duration::ZERO));
}

/// Each core has a part of the connections, and tells its responses as slowly as if it had all.
#[tokio::test(start_paused = true)]
async fn cores_that_drain_together_are_no_faster_than_one() {
    for (open, least, most) in [(1, 40, 60), (4, 8, 16)] {
        let (case, told) = (empty_case(), Arc::new(AtomicUsize::new(0)));
        let endings: Vec<_> = (0..100)
            .map(|_| {
                let told = Arc::clone(&told);
                case.conn_state.register_ending(GracefulClose::new(move || {
                    told.fetch_add(1, Ordering::Relaxed);
                }))
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut waves = Waves::begin([&case.conn_state].into_iter(), open, Duration::MAX, deadline);
        tokio::time::advance(Duration::from_millis(500)).await;
        waves.end_due();
        let told = told.load(Ordering::Relaxed);
        assert!((least..=most).contains(&told), "{told} with {open} open connections");
        drop(endings);
    }
}

/// A response that a client begins on a connection whose responses end later ends with these. It does not wait for the
/// deadline, nor end alone.
#[tokio::test(start_paused = true)]
async fn a_response_that_begins_during_a_drain_ends_with_the_others_of_its_connection() {
    let shared = shared(Limits::default());
    let reaper = tokio::spawn(reaper(Arc::clone(&shared)));
    let (case, other) = (empty_case(), empty_case());
    let running = [&case, &other].map(|case| shared.enter(&case.conn_state));
    let told = Arc::new(AtomicUsize::new(0));
    let register = |case: &Case| {
        let told = Arc::clone(&told);
        case.conn_state.register_ending(GracefulClose::new(move || {
            told.fetch_add(1, Ordering::Relaxed);
        }))
    };
    let told = || told.load(Ordering::Relaxed);
    let endings: Vec<_> = (0..100).map(|_| register(&case)).collect();
    tokio::time::sleep(TICK).await;
    shared.drain(Duration::from_secs(10));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!((5..=15).contains(&told()), "{}", told());
    assert!(case.conn_state.is_draining() && other.conn_state.is_draining());
    let before = told();
    let late = register(&case);
    assert_eq!(told(), before, "it waits for the others");
    let alone = register(&other);
    assert_eq!(told(), before + 1, "there are no others");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told(), 102);
    drop((endings, late, alone, running));
    reaper.await.unwrap();
}

/// The requests of a connection have the same age, and a time to finish.
#[tokio::test(start_paused = true)]
async fn a_connection_that_has_reached_its_age_drains_and_is_reset() {
    let second = Duration::from_secs(1);
    let aged = |protocol| {
        let case = Case::with(CountedIo::new(tokio::io::empty()), Limits::default().age(60 * second, 5 * second));
        case.conn_state.set_protocol(protocol);
        case.conn_state.requests.begin();
        case
    };
    let mut one = aged(Protocol::One);
    let told = Arc::new(AtomicUsize::new(0));
    let notifier = Arc::clone(&told);
    let _ending = one.conn_state.register_ending(GracefulClose::new(move || {
        notifier.fetch_add(1, Ordering::Relaxed);
    }));
    assert_eq!(one.phase(60 * second - TICK).await, ShutdownPhase::Nothing);
    assert!(!one.conn_state.is_draining() && told.load(Ordering::Relaxed) == 0);
    assert_eq!(one.phase(TICK).await, ShutdownPhase::Nothing, "a response in progress");
    assert!(one.conn_state.is_draining() && told.load(Ordering::Relaxed) == 1);
    assert_eq!(one.phase(5 * second - TICK).await, ShutdownPhase::Nothing);
    assert_eq!(told.load(Ordering::Relaxed), 1, "once");
    assert_eq!(one.phase(TICK).await, ShutdownPhase::Abort);

    let mut two = aged(Protocol::Two);
    assert_eq!(two.phase(60 * second).await, ShutdownPhase::Finish, "GOAWAY with a response in progress");
    two.conn_state.requests.end();
    assert_eq!(two.phase(5 * second).await, ShutdownPhase::Abort, "it has not ended");

    let mut idle = aged(Protocol::One);
    idle.conn_state.requests.end();
    assert_eq!(idle.phase(TICK).await, ShutdownPhase::Nothing);
    assert_eq!(idle.phase(60 * second).await, ShutdownPhase::Nothing, "a request may be on its way");
    assert_eq!(idle.phase(TICK).await, ShutdownPhase::Finish);
}

/// Connections that rest, and are checked less often, end within a second of their age. They do not count for a drain that
/// begins later.
#[tokio::test(start_paused = true)]
async fn the_age_of_a_connection_that_rests_is_late_by_a_second_at_most() {
    for at in 0..40 {
        let age = Duration::from_secs(5) + TICK / 10 * at;
        let limits = Limits::default().age(age, Duration::MAX);
        let shared = shared(limits.clone());
        let reaper = tokio::spawn(reaper(Arc::clone(&shared)));
        let case = Case::with(CountedIo::new(tokio::io::empty()), limits);
        case.conn_state.requests.begin();
        case.conn_state.requests.end();
        let running = shared.enter(&case.conn_state);
        tokio::time::sleep(age).await;
        assert!(!case.conn_state.is_draining());
        // Timers have a resolution of a millisecond.
        tokio::time::sleep(Duration::from_millis(1010)).await;
        assert!(case.conn_state.is_draining(), "{age:?}");
        tokio::time::sleep(TICK).await;
        assert!(case.conn_state.phase() >= ShutdownPhase::Finish);
        drop((running, case));
        let other = empty_case();
        let running = shared.enter(&other.conn_state);
        tokio::time::sleep(TICK).await;
        shared.drain(Duration::MAX);
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(running);
        assert_eq!(reaper.await.unwrap().connections, 1);
    }
}

/// Also without a check between the signal and its end.
#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_during_a_drain_counts_and_one_that_ended_before_does_not() {
    let shared = shared(Limits::default());
    let reaper = tokio::spawn(reaper(Arc::clone(&shared)));
    let cases = [(); 4].map(|()| empty_case());
    let enter = |at: usize| shared.enter(&cases[at].conn_state);
    let (before, after) = (enter(0), enter(1));
    tokio::time::sleep(TICK).await;
    drop(before);
    drop(enter(2));
    shared.drain(Duration::from_secs(10));
    drop(after);
    drop(enter(3));
    let drained = reaper.await.unwrap();
    assert_eq!((drained.connections, drained.finished), (2, 2), "{drained:?}");
}
