//! A connection and the reaper, in every order: `.ci/run models`.

use std::future::pending;

use loom::future::block_on;
use loom::thread;

use super::super::super::conn_limiter::ConnLimiter;
use super::super::*;

fn conn_state() -> Arc<ConnState> {
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    ConnState::new(limits, crate::net::CountedIo::new(tokio::io::empty()).handle(), Peer::default(), permit)
}

#[test]
fn a_task_that_is_timed_out_knows_after_which_request() {
    loom::model(|| {
        let conn_state = conn_state();
        conn_state.late_after.store(7, Ordering::Relaxed);
        let reaper = thread::spawn({
            let conn_state = Arc::clone(&conn_state);
            move || conn_state.time_out(0)
        });
        let heard = block_on(conn_state.unless_raised(ShutdownPhase::Nothing, pending::<()>()));
        assert_eq!(heard, Err(ShutdownPhase::TimedOut));
        assert!(conn_state.is_late());
        reaper.join().unwrap();
    });
}

#[test]
fn a_connection_that_is_over_is_known_to_have_drained() {
    loom::model(|| {
        let conn_state = conn_state();
        let task = thread::spawn({
            let conn_state = Arc::clone(&conn_state);
            move || {
                conn_state.mark_drained();
                conn_state.end();
            }
        });
        assert!(!conn_state.is_over() || conn_state.is_drained());
        task.join().unwrap();
        assert!(conn_state.is_over() && conn_state.is_drained());
    });
}
