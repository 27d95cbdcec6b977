//! Unit tests of `state`.

use tokio::time::Instant;

use super::super::ring::Name;
use super::*;

#[test]
fn who_has_read_in_time_after_all_is_not_given_up() {
    let limits = Limits { count: 100, bytes: 1 << 20, age: None };
    let config = Config {
        limits,
        queue: 2,
        slow: LagPolicy::Block,
        patience: Duration::ZERO,
        keep_alive: None,
        subscribers: 1,
        retry: Draws::new(Duration::ZERO),
        max_age: None,
        past_layers: false,
        gzip: None,
    };
    let mut state = HubState {
        ring: Ring::new(limits, 0),
        stats: HubStats::default(),
        last_gap: None,
        leaving: None,
        followers: 0,
    };
    let push = |state: &mut HubState| {
        let unread = state.ring.unread();
        state.ring.push(Bytes::from_static(b"event"), Name::Numbered, Instant::now(), unread);
    };
    state.ring.move_reader(None, Some(0));
    let mut cursor = Cursor { next: 0, catch_up: 0, forgets: 0 };
    (0..2).for_each(|_| push(&mut state));
    assert!(!state.has_room(&config, 1));
    // It reads between the timeout of the sender and the sender's next step.
    assert!(matches!(state.read(&config, &mut cursor, Form::Plain), (Read::Events(_), 2, 0)));
    state.ring.move_reader(Some(0), Some(2));
    state.give_up(&config, 1);
    (0..2).for_each(|_| push(&mut state));
    assert_eq!(state.ring.unread(), 2, "the reader still counts");
    assert!(!state.has_room(&config, 1), "senders still wait for the reader");
    assert!(matches!(state.read(&config, &mut cursor, Form::Plain), (Read::Events(_), 2, 0)));
}
