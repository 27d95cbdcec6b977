//! Bounds of the labels, and what comes out of what was put in.

use super::*;

const LABELS: Labels = Labels { method: 0, version: 0, status: 200, route: 0, outcome: Outcome::Complete };

#[test]
fn labels_are_packed_without_loss() {
    for outcome in Outcome::ALL {
        let labels = Labels { method: 9, version: 4, status: 599, route: ROUTE_OTHER, outcome };
        assert_eq!(Labels::unpack(labels.pack()), labels);
        assert_eq!(Labels::unpack(Labels { outcome, ..LABELS }.pack()).outcome, outcome);
    }
}

#[test]
fn sets_keep_their_places_and_what_is_one_too_many_has_none() {
    let table = Table([const { AtomicU64::new(0) }; SETS]);
    let with_route = |n: usize| Labels { route: 1 + (n % ROUTES) as u8, status: 200 + (n / ROUTES) as u16, ..LABELS };
    let places: Vec<usize> = (0..1000).map(|n| table.place(with_route(n))).collect();
    let again: Vec<usize> = (0..1000).map(|n| table.place(with_route(n))).collect();
    assert_eq!(places, again);
    let own = places.iter().filter(|&&at| table.labels(at).route != ROUTE_OTHER).count();
    assert_eq!(own, SETS_WITH_ROUTE - 1, "those that came first, and no more");
    for n in 0..own {
        assert_eq!(table.labels(places[n]), with_route(n));
    }
    // Those without a route have room left, down to the last place.
    for status in 100..600 {
        let at = table.place(Labels { status, ..LABELS });
        let kept = table.labels(at);
        assert!(kept == Labels { status, ..LABELS } || kept.route == ROUTE_OTHER && [status, 0].contains(&kept.status));
    }
    assert_eq!(table.place(Labels { status: 599, outcome: Outcome::Error, ..LABELS }), 0);
    assert_eq!(Responses::of(table.labels(0)).method, OTHER);
}

#[test]
fn routes_have_names_up_to_a_bound() {
    let names = Names([const { OnceLock::new() }; ROUTES]);
    let numbers: Vec<u8> = (0..200).map(|n| names.number(&format!("/{n}"))).collect();
    for (n, &number) in numbers.iter().enumerate().take(ROUTES) {
        assert_eq!(names.name(number), Some(&*format!("/{n}")));
    }
    assert!(numbers[ROUTES..].iter().all(|&number| names.name(number) == Some(OTHER)));
    assert_eq!((names.number("/7"), names.name(0)), (numbers[7], None));
}

/// Only tests that say so use this status.
fn of(status: u16, requests: &Requests) -> Option<Responses> {
    requests.ended.iter().find(|responses| responses.status == Some(status)).cloned()
}

#[test]
fn what_threads_add_comes_out_by_labels() {
    let ended = |duration| Ended {
        duration,
        first_byte: Some(1_000_000),
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
    assert_eq!((new.body_size.sum(), new.frames.sum(), new.first_byte.sum()), (96.0, 8.0, 0.008));
    assert!(of(233, &Requests::now().since(&Requests::now())).is_none());
}

#[test]
fn who_has_come_and_not_ended_is_active() {
    const TRACE: u8 = 8;
    let active = || Requests::now().active.into_iter().find(|&(method, _)| method == "TRACE").map_or(0, |(_, n)| n);
    began(TRACE);
    assert_eq!(active(), 1);
    let end = Ended { duration: 1, first_byte: None, largest_gap: None, bytes: 0, frames: 0 };
    let labels = Labels { method: TRACE, status: 0, outcome: Outcome::Aborted, ..LABELS };
    std::thread::spawn(move || ended(labels, end)).join().unwrap();
    assert_eq!(active(), 0);
}
