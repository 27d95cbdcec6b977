//! Unit tests of `requests`.

use super::*;

#[cfg(millstream_loom)]
mod models;

#[test]
fn a_body_that_is_read_late_does_not_end_that_of_the_next_request() {
    let requests = Requests::default();
    requests.begin();
    let first = requests.arrives();
    requests.end();
    requests.begin();
    let second = requests.arrives();
    requests.arrived(first);
    assert!(requests.is_arriving());
    requests.arrived(second);
    assert!(!requests.is_arriving());
}

#[test]
fn a_body_that_is_dropped_late_leaves_nothing_of_the_next_request_unread() {
    let requests = Requests::default();
    requests.begin();
    let first = requests.arrives();
    requests.end();
    requests.begin();
    let second = requests.arrives();
    requests.leaves_unread(first);
    assert!(!requests.has_unread());
    requests.leaves_unread(second);
    requests.leaves_unread(first);
    assert!(requests.has_unread());
}
