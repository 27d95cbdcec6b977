//! Unit tests of `health`.

use super::*;
use tokio::time::advance;

const BACK_OFF: Duration = Duration::from_secs(8);

fn broken(health: &Health) {
    for _ in 0..3 {
        health.admit(false).unwrap().failed();
    }
    assert_eq!((health.circuit(), health.trips()), (Circuit::Open, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_open_it_and_one_answer_closes_it() {
    let health = Health::new(3, BACK_OFF);
    for _ in 0..4 {
        health.admit(false).unwrap().failed();
        health.admit(false).unwrap().failed();
        health.admit(false).unwrap().answered();
    }
    assert_eq!((health.circuit(), health.failures()), (Circuit::Closed, 0), "not in a row");
    broken(&health);
    assert_eq!(health.admit(false).err(), Some(BACK_OFF));
    advance(BACK_OFF / 2).await;
    assert_eq!(health.admit(false).err(), Some(BACK_OFF / 2));
    advance(BACK_OFF / 2).await;
    assert_eq!(health.circuit(), Circuit::HalfOpen);
    let probe = health.admit(false).unwrap();
    assert_eq!(health.admit(false).err(), Some(BACK_OFF), "one probe at a time");
    probe.failed();
    assert_eq!((health.admit(false).err(), health.trips()), (Some(BACK_OFF), 2));
    advance(BACK_OFF).await;
    health.admit(false).unwrap().answered();
    assert_eq!((health.circuit(), health.failures()), (Circuit::Closed, 0));
    assert!(health.admit(false).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_client_leaves_makes_room_for_another() {
    let health = Health::new(3, BACK_OFF);
    broken(&health);
    advance(BACK_OFF).await;
    drop(health.admit(false).unwrap());
    health.admit(false).unwrap().answered();
    assert_eq!(health.circuit(), Circuit::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_place_is_no_probe() {
    let health = Health::new(3, BACK_OFF);
    assert_eq!(health.check(false), Ok(()));
    broken(&health);
    assert_eq!(health.check(false), Err(BACK_OFF));
    advance(BACK_OFF).await;
    let upload = health.admit(true).unwrap();
    assert_eq!((health.check(false), health.check(true)), (Ok(()), Err(BACK_OFF)));
    upload.failed();
    assert_eq!(health.circuit(), Circuit::Open, "the upload was the probe");
}

#[tokio::test(start_paused = true)]
async fn a_slow_probe_keeps_no_others_out() {
    let health = Health::new(3, BACK_OFF);
    broken(&health);
    advance(BACK_OFF).await;
    let upload = health.admit(true).unwrap();
    assert_eq!(health.admit(true).err(), Some(BACK_OFF), "another upload waits");
    let probe = health.admit(false).unwrap();
    assert_eq!(health.admit(false).err(), Some(BACK_OFF));
    upload.answered();
    assert_eq!(health.circuit(), Circuit::HalfOpen, "the upload has lost its place");
    advance(BACK_OFF).await;
    let next = health.admit(true).unwrap();
    probe.failed();
    assert_eq!((health.circuit(), health.trips()), (Circuit::HalfOpen, 1), "the first probe has lost its place");
    assert_eq!(health.admit(true).err(), Some(BACK_OFF), "and does not free it");
    next.answered();
    assert_eq!((health.circuit(), health.failures()), (Circuit::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_has_no_effect() {
    let health = Health::new(3, BACK_OFF);
    let (good, bad) = (health.admit(false).unwrap(), health.admit(false).unwrap());
    broken(&health);
    good.answered();
    assert_eq!(health.circuit(), Circuit::Open);
    advance(BACK_OFF).await;
    bad.failed();
    assert_eq!((health.circuit(), health.trips()), (Circuit::HalfOpen, 1));
}

#[test]
fn a_failure_while_a_probe_is_answered_opens_it_or_is_forgotten() {
    // Several threads, so that one waits for the lock while another takes it.
    for n in 0..1000 {
        let health = Health::new(1, Duration::ZERO);
        let late = [(); 3].map(|()| health.admit(false).unwrap());
        health.admit(false).unwrap().failed();
        let probe = health.admit(false).unwrap();
        std::thread::scope(|scope| {
            for late in late {
                scope.spawn(|| {
                    while health.circuit() != Circuit::Closed && health.trips() == 1 {
                        std::hint::spin_loop();
                    }
                    late.failed();
                });
            }
            probe.answered();
        });
        assert_eq!(health.failures() > 0, health.circuit() != Circuit::Closed, "round {n}");
    }
}

#[test]
fn without_a_limit_it_stays_closed() {
    let health = Health::new(u32::MAX, BACK_OFF);
    health.admit(false).unwrap().failed();
    assert_eq!((health.circuit(), health.failures()), (Circuit::Closed, 0));
}
