//! Unit tests of `wait_list`.

use super::*;

#[test]
fn places_are_left_from_anywhere() {
    let mut list = WaitList::default();
    let mut places: Vec<_> = (0..10).map(|_| list.join()).collect();
    let waiting = |list: &WaitList| list.waiting.iter().map(|waiting| waiting.place).collect::<Vec<_>>();
    for round in 0..2 {
        for _ in 0..2 {
            // The second wait of a reader replaces the first.
            places.iter().for_each(|&place| drop(list.wait(place, 0, Waker::noop())));
        }
        assert_eq!(waiting(&list).len(), 10 - 3 * round);
        for at in [1, 3, 0] {
            let place = places.remove(at);
            assert!(list.leave(place).is_some());
            assert!(!waiting(&list).contains(&place), "{:?}", waiting(&list));
        }
        places.iter().for_each(|&place| drop(list.wait(place, 0, Waker::noop())));
        assert_eq!(waiting(&list).len(), places.len(), "moved readers stay registered");
        let mut taken = list.take();
        assert_eq!((taken.len(), waiting(&list).len()), (places.len(), 0));
        taken.clear();
        list.reuse(taken);
    }
    places.into_iter().for_each(|place| assert!(list.leave(place).is_none()));
    assert!(list.len() == 0 && list.at.is_empty());
}
