//! Concurrent threads at a driver: `RUSTFLAGS='--cfg millstream_loom' cargo test --release --lib models`.

use std::time::Duration;

use loom::future::block_on;
use loom::thread;

use super::*;

/// Creates a counter of live memory, and a driver whose kernel fails if memory is used while it is not live.
fn setup() -> (Arc<AtomicUsize>, Arc<RingDriver>, Handle) {
    let alive = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&alive);
    let (driver, handle) = driver(4, move |_| {
        assert_eq!(seen.load(Ordering::SeqCst), 1, "memory was freed while the kernel used it");
        Act::Do
    });
    (alive, driver, handle)
}

fn operation(alive: &Arc<AtomicUsize>) -> Program {
    Program::of(write(&file(), 0, counted(4, alive)))
}

#[test]
fn the_waiting_task_is_woken() {
    loom::model(|| {
        let (alive, driver, _) = setup();
        let running = submit(&driver, operation(&alive));
        let flusher = thread::spawn({
            let driver = Arc::clone(&driver);
            move || driver.turn()
        });
        assert!(matches!(block_on(running), Ended::Finished(_)));
        flusher.join().unwrap();
        assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
    });
}

#[test]
fn a_drop_meets_the_completion() {
    loom::model(|| {
        let (alive, driver, handle) = setup();
        let mut running = submit(&driver, operation(&alive));
        let user = thread::spawn(move || {
            let _ = poll(&mut running);
            drop(running);
        });
        driver.turn();
        user.join().unwrap();
        driver.turn();
        assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight(), handle.in_flight()), (0, 0, 0));
    });
}

#[test]
fn a_drop_meets_a_kernel_that_takes_its_time() {
    loom::model(|| {
        let (alive, driver, handle) = setup();
        handle.set_script(|_| Act::Hold);
        let running = submit(&driver, operation(&alive));
        let user = thread::spawn(move || drop(running));
        driver.turn();
        user.join().unwrap();
        driver.turn();
        assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight(), handle.in_flight()), (0, 0, 0));
    });
}

#[test]
fn a_submission_meets_the_shutdown() {
    loom::model(|| {
        let (alive, driver, _) = setup();
        let user = thread::spawn({
            let (alive, driver) = (Arc::clone(&alive), Arc::clone(&driver));
            move || match driver.submit(Box::new(operation(&alive))) {
                // Either no thread drives the ring any more, or the last turn took the program.
                Ok(running) => assert!(matches!(block_on(running), Ended::Finished(_) | Ended::Fallback(_, None))),
                Err((program, _)) => drop(program),
            }
        });
        driver.turn();
        assert_eq!(driver.shutdown(Duration::from_millis(1)), 0);
        user.join().unwrap();
        assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
    });
}

#[test]
fn two_tasks_and_a_flusher() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let (driver, _) = driver(4, |_| Act::Do);
        let user = thread::spawn({
            let (alive, driver) = (Arc::clone(&alive), Arc::clone(&driver));
            move || drop(submit(&driver, operation(&alive)))
        });
        let mut mine = submit(&driver, operation(&alive));
        driver.turn();
        finished(&mut mine);
        user.join().unwrap();
        driver.turn();
        assert_eq!((alive.load(Ordering::SeqCst), driver.in_flight()), (0, 0));
    });
}

/// A permit is returned to the next waiter once the kernel has released the program, whichever thread drops the future.
#[test]
fn a_program_that_may_wait_gives_its_room_to_the_next() {
    loom::model(|| {
        let (driver, handle) = driver(2, |_| Act::Hold);
        let file = file();
        let waits = || Program::of(Read::next(target(&file), 1));
        let (room, units) = driver.waiting_room(&waits()).unwrap();
        let mut first = waits();
        first.permit(Arc::clone(&room).try_acquire_many_owned(units).unwrap());
        assert_eq!(room.available_permits(), 1);
        let running = submit(&driver, first);
        let user = thread::spawn(move || drop(running));
        driver.turn();
        user.join().unwrap();
        driver.turn();
        assert_eq!((room.available_permits(), driver.in_flight(), handle.in_flight()), (2, 0, 0));
    });
}

#[test]
fn programs_without_room_do_not_wait() {
    loom::model(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let (driver, _) = driver(1, |_| Act::Hold);
        // Three of the four completions are for programs that do not wait for a peer.
        let held: Vec<_> = (0..3).map(|_| submit(&driver, operation(&alive))).collect();
        while driver.turn() {}
        let running = submit(&driver, operation(&alive));
        let flusher = thread::spawn({
            let driver = Arc::clone(&driver);
            move || driver.turn()
        });
        assert!(matches!(block_on(running), Ended::Fallback(_, None)));
        flusher.join().unwrap();
        drop(held);
    });
}
