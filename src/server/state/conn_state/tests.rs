//! Unit tests of `conn_state`.

use super::super::conn_limiter::ConnLimiter;
use super::*;

#[cfg(millstream_loom)]
mod models;

#[test]
fn a_request_to_hibernate_is_void_after_a_further_request() {
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let stream = crate::net::CountedIo::new(tokio::io::empty());
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    assert!(!conn_state.should_hibernate(), "it had no request");
    conn_state.requests.begin();
    conn_state.requests.end();
    conn_state.hibernate_after.store(1, Ordering::Relaxed);
    assert!(conn_state.should_hibernate());
    conn_state.requests.begin();
    assert!(!conn_state.should_hibernate());
    conn_state.requests.end();
    assert!(!conn_state.should_hibernate());
}
