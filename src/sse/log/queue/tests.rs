//! Unit tests of `queue`.

use super::*;

impl Size for usize {
    fn bytes(&self) -> usize {
        *self
    }
}

fn numbers(appends: &[Append<usize>]) -> Vec<u64> {
    appends.iter().map(|append| append.number).collect()
}

#[test]
fn taken_appends_count_until_they_are_settled() {
    let queue = Queue::new(2, 1 << 20);
    assert_eq!((queue.push(10), queue.push(20)), (Ok(()), Ok(())));
    assert_eq!(queue.push(0), Err(Refused::Full));
    let taken = queue.take(|_| true);
    assert_eq!((numbers(&taken), queue.push(0)), (vec![1, 2], Err(Refused::Full)));
    assert_eq!(queue.len(), (2, 30));
    queue.put_back(taken);
    let taken = queue.take(|_| true);
    assert_eq!(numbers(&taken), [1, 2]);
    queue.settle(taken);
    assert_eq!((queue.len(), queue.push(0)), ((0, 0), Ok(())));
    assert_eq!(numbers(&queue.take(|_| true)), [3], "a refused append uses no number");
}

#[test]
fn bytes_are_bounded_but_one_append_always_fits() {
    let queue = Queue::new(100, 1000);
    assert_eq!(queue.push(5000), Ok(()));
    assert_eq!(queue.push(1), Err(Refused::Full));
    assert_eq!(queue.first(|&bytes| bytes), Some(5000));
}

#[test]
fn an_append_that_does_not_fit_waits_with_all_behind_it() {
    let queue = Queue::new(100, 1 << 20);
    [1, 5, 1].iter().for_each(|&bytes| queue.push(bytes).unwrap());
    assert_eq!(numbers(&queue.take(|&bytes| bytes < 5)), [1]);
    assert_eq!(numbers(&queue.take(|_| true)), [2, 3]);
}

#[test]
fn the_last_hub_that_leaves_closes_and_the_next_opens() {
    let queue = Queue::new(10, 1 << 20);
    assert_eq!(queue.push(1), Ok(()), "the append waits for the first hub");
    (0..2).for_each(|_| queue.enter());
    assert!(queue.take_left().is_none());
    assert!(queue.leave_done(), "the other hub appends it");
    assert!(!queue.leave_done() && queue.take_left().is_none(), "no other hub would append it");
    let taken = queue.take(|_| true);
    assert!(!queue.leave_done(), "the append is not confirmed");
    queue.settle(taken);
    assert!(queue.leave_done());
    assert_eq!(queue.push(1), Err(Refused::Closed));
    (0..2).for_each(|_| queue.enter());
    assert_eq!(queue.push(1), Ok(()));
    assert_eq!((queue.leave(), queue.leave()), (false, true), "the second hub is the last");
    assert_eq!(queue.take_left().map(|left| left.len()), Some(1));
}
