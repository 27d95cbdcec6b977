//! Unit tests of `slots`.

use super::*;
use crate::ops::rw::Nop;

fn program() -> Box<Program> {
    Box::new(Program::of(Nop))
}

fn waker() -> Waker {
    Waker::noop().clone()
}

#[test]
fn a_stale_key_changes_nothing() {
    let mut slots = Slots::default();
    let old = slots.insert(program());
    assert!(matches!(slots.orphan(old), Orphan::Free(Some(_))));
    let new = slots.insert(program());
    assert_eq!(old.index, new.index);
    slots.submitted(old);
    assert!(slots.in_flight(old).is_none() && slots.in_flight(new).is_none());
    assert!(matches!(slots.orphan(old), Orphan::Free(None)));
    slots.submitted(new);
    assert!(slots.end(old, Ended::Finished).1.is_none());
    assert!(slots.in_flight(new).is_some());
}

#[test]
fn programs_in_flight_stay_until_they_end() {
    let mut slots = Slots::default();
    let key = slots.insert(program());
    slots.submitted(key);
    assert!(slots.poll(key, waker()).is_err());
    assert!(matches!(slots.orphan(key), Orphan::InFlight));
    assert_eq!(slots.used(), 1);
    let (waker, end) = slots.end(key, Ended::Finished);
    assert!(waker.is_none() && end.is_some());
    assert_eq!(slots.used(), 0);
}

#[test]
fn an_end_wakes_and_is_taken_once() {
    let mut slots = Slots::default();
    let key = slots.insert(program());
    assert!(slots.poll(key, waker()).is_err());
    slots.submitted(key);
    assert!(slots.end(key, Ended::Finished).0.is_some());
    assert!(slots.poll(key, waker()).is_ok());
    assert_eq!(slots.used(), 0);
}
