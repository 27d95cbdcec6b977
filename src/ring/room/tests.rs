//! Unit tests of `room`.

use super::*;

#[test]
fn shares_never_add_up_to_more_than_there_is() {
    for entries in [4usize, 8, 32, 128, 4096] {
        let room = Room::new(entries * 4, 256);
        assert_eq!(room.control.limit + room.swift.limit + room.waiting.limit, entries * 4);
        assert!(room.control.limit >= 2 && room.waiting.limit >= entries, "a chain as long as the ring must fit");
        assert_eq!(room.swift_places.limit + room.waiting_places.limit, 256);
    }
}

#[test]
fn units_cover_completions_and_places() {
    for entries in [32usize, 128, 4096] {
        let mut room = Room::new(entries * 4, 256);
        for (completions, places) in [(1, 0), (3, 1), (5, 2), (32, 16)] {
            let need = Need { waits: true, completions, places };
            let programs = room.units() / room.units_of(need);
            for _ in 0..programs {
                assert!(room.take(need));
            }
            (0..programs).for_each(|_| room.give(need));
            assert_eq!(room, Room::new(entries * 4, 256));
        }
    }
}

#[test]
fn waiting_programs_take_no_room_of_others() {
    let mut room = Room::new(32, 8);
    let waits = Need { waits: true, completions: 2, places: 1 };
    let swift = Need { waits: false, ..waits };
    while room.take(waits) {}
    for _ in 0..4 {
        assert!(room.take(swift));
    }
    assert!(!room.take(swift), "all places are taken");
    assert!(room.take(Need { places: 0, ..swift }));
}
