//! Unit tests of `labels`.

use super::*;

const LABELS: Labels = Labels { method: 0, version: 0, status: 200, route: 0, outcome: ResponseOutcome::Complete };

#[test]
fn labels_are_packed_without_loss() {
    for outcome in ResponseOutcome::ALL {
        let labels = Labels { method: 9, version: 4, status: 599, route: ROUTE_OTHER, outcome };
        assert_eq!(Labels::unpack(labels.pack()), labels);
        assert_eq!(Labels::unpack(Labels { outcome, ..LABELS }.pack()).outcome, outcome);
    }
}

#[test]
fn sets_keep_their_places_up_to_a_bound() {
    let table = Table([const { AtomicU64::new(0) }; SETS]);
    let with_route = |n: usize| Labels { route: 1 + (n % ROUTES) as u8, status: 200 + (n / ROUTES) as u16, ..LABELS };
    let places: Vec<usize> = (0..1000).map(|n| table.place(with_route(n))).collect();
    let again: Vec<usize> = (0..1000).map(|n| table.place(with_route(n))).collect();
    assert_eq!(places, again);
    let own = places.iter().filter(|&&at| table.labels(at).route != ROUTE_OTHER).count();
    assert_eq!(own, SETS_WITH_ROUTE - 1, "only the first sets have places");
    for (n, &place) in places.iter().enumerate().take(own) {
        assert_eq!(table.labels(place), with_route(n));
    }
    // Sets without a route still find room, down to the last place.
    for status in 100..600 {
        let at = table.place(Labels { status, ..LABELS });
        let kept = table.labels(at);
        assert!(kept == Labels { status, ..LABELS } || kept.route == ROUTE_OTHER && [status, 0].contains(&kept.status));
    }
    assert_eq!(table.place(Labels { status: 599, outcome: ResponseOutcome::Error, ..LABELS }), 0);
    assert_eq!(METHODS[usize::from(table.labels(0).method)], OTHER);
}

#[test]
fn a_set_has_one_place_whichever_way_it_lost_its_route() {
    let table = Table([const { AtomicU64::new(0) }; SETS]);
    for n in 0..400u16 {
        // Beyond the bound of names, and beyond the bound of sets.
        for route in [ROUTE_OTHER, 1 + (n / 20) as u8] {
            table.place(Labels { route, status: 200 + n % 20, ..LABELS });
        }
    }
    let mut keys: Vec<_> = table.0.iter().map(|key| key.load(Ordering::Relaxed)).filter(|&key| key > 0).collect();
    keys.sort_unstable();
    let twice: Vec<_> = keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| Labels::unpack(pair[0])).collect();
    assert!(twice.is_empty() && keys.len() >= SETS_WITH_ROUTE - 1, "{twice:?} of {}", keys.len());
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
