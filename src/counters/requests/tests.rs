//! Results of requests, by label set.

use super::*;

const LABELS: Labels = Labels { method: 0, version: 0, status: 200, route: 0, outcome: ResponseOutcome::Complete };

/// `status` identifies one test: no other test uses it.
fn of(status: u16, requests: &Requests) -> Option<Responses> {
    requests.ended.iter().find(|responses| responses.status == Some(status)).cloned()
}

#[test]
fn results_of_all_threads_are_summed_by_labels() {
    let ended = |duration| Ended {
        duration,
        time_to_head: Some(1_000_000),
        largest_gap: (duration > 20_000_000).then_some(8_000_000),
        bytes: 12,
        frames: 1,
    };
    let labels = Labels { status: 233, ..LABELS };
    let round = || {
        for duration in [3_000_000, 30_000_000] {
            began(0);
            super::ended(labels, ended(duration));
        }
    };
    round();
    let before = Requests::now();
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(round))));
    let all = of(233, &Requests::now()).unwrap();
    assert_eq!((all.duration.count(), all.method, all.version, all.route), (10, "GET", "1.1", None));
    let new = of(233, &Requests::now().since(&before)).unwrap();
    assert_eq!((new.duration.count(), new.duration.sum(), new.largest_gap.count()), (8, 0.132, 4));
    assert_eq!((new.body_size.sum(), new.frames.sum(), new.time_to_head.sum()), (96.0, 8.0, 0.008));
    assert!(of(233, &Requests::now().since(&Requests::now())).is_none());
}

#[test]
fn a_request_is_active_until_it_ends() {
    const TRACE: u8 = 8;
    let active = || Requests::now().active.into_iter().find(|&(method, _)| method == "TRACE").map_or(0, |(_, n)| n);
    began(TRACE);
    assert_eq!(active(), 1);
    let end = Ended { duration: 1, time_to_head: None, largest_gap: None, bytes: 0, frames: 0 };
    let labels = Labels { method: TRACE, status: 0, outcome: ResponseOutcome::Aborted, ..LABELS };
    std::thread::spawn(move || ended(labels, end)).join().unwrap();
    assert_eq!(active(), 0);
}
