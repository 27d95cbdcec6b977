//! A ring full of programs that never end: other programs neither wait for them nor get lost, and all can be cancelled.

use std::collections::HashSet;
use std::sync::Mutex;

use io_uring::opcode;
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::*;
use crate::ops::open::{Close, Dir, Open};
use crate::ring::room::Room;
use crate::sys::path::How;

const TURNS_MAX: usize = 100;

fn turns(driver: &RingDriver) {
    for _ in 0..TURNS_MAX {
        if !driver.turn() && !driver.has_work() {
            return;
        }
    }
    panic!("the driver always has something to do: {driver:?}");
}

fn waits(file: &Arc<File>) -> Read {
    Read::next(target(file), 1)
}

/// A script in which reads at the file position never end.
fn held_reads(sqe: &Sqe) -> Act {
    match sqe.opcode {
        opcode::Read::CODE if sqe.offset == u64::MAX => Act::Hold,
        opcode::OpenAt2::CODE | opcode::Close::CODE => Act::Give(0),
        _ => Act::Do,
    }
}

fn submit_waiting(driver: &Arc<RingDriver>, mut program: Program) -> Option<Running> {
    let (room, units) = driver.waiting_room(&program)?;
    program.permit(room.try_acquire_many_owned(units).ok()?);
    Some(submit(driver, program))
}

fn opens(files: usize, file: &Arc<File>) -> Program {
    let how = How::new(OFlags::RDONLY, Mode::empty(), ResolveFlags::empty());
    let mut program = Program::new();
    let opened: Vec<_> = (0..files).map(|_| program.open_next()).collect();
    for &n in &opened {
        program.push(Open::for_program(Dir::default(), c"file".into(), how, n));
    }
    program.push(waits(file));
    opened.into_iter().for_each(|n| program.push_last(Close::of_program(n)));
    program
}

/// Reads from a file. Returns whether the ring completed the read by the end of the turn; else plain calls do it.
fn reads(driver: &Arc<RingDriver>) -> bool {
    let file = file();
    file.write_all_at(&pattern(100), 0).unwrap();
    let mut running = submit(driver, Program::of(read(&file, 10, 50)));
    turns(driver);
    let (mut program, by_ring) = match poll(&mut running) {
        Some(Ended::Finished(program)) => (program, true),
        Some(Ended::Fallback(mut program, None)) => {
            program.run_blocking();
            (program, false)
        }
        other => panic!("the read waits: {other:?}"),
    };
    assert_eq!(program.take::<Read>(0).into_bytes(), pattern(100)[10..60]);
    by_ring
}

/// Asserts that nothing is in use except the slots of forgotten futures.
fn is_empty(driver: &RingDriver, handle: &Handle, capacity: usize, forgotten: usize) {
    assert_eq!((driver.in_flight(), handle.in_flight()), (0, 0));
    let queue = lock(&driver.queue);
    assert_eq!(queue.slots.used(), forgotten);
    assert_eq!(queue.room, Room::new(capacity * 4, 8));
    let mut places = queue.files.clone();
    places.sort_unstable();
    assert_eq!(places, (0..8).collect::<Vec<_>>());
    drop(queue);
    let (waiting, _) = driver.waiting_room(&Program::of(waits(&file()))).unwrap();
    assert_eq!(waiting.available_permits(), capacity, "a quarter of the completions");
}

#[test]
fn programs_that_wait_leave_room_for_others_and_for_their_cancels() {
    for capacity in [8, 32, 128] {
        let (driver, handle) = driver(capacity, held_reads);
        let file = file();
        let mut running = Vec::new();
        while let Some(one) = submit_waiting(&driver, Program::of(waits(&file))) {
            running.push(one);
        }
        turns(&driver);
        assert_eq!((running.len(), handle.in_flight()), (capacity, capacity), "a quarter of the completions");
        assert!(reads(&driver), "the ring has room");
        drop(running);
        turns(&driver);
        is_empty(&driver, &handle, capacity, 0);
    }
}

#[test]
fn programs_that_hold_files_open_leave_places_for_others() {
    let (driver, handle) = driver(32, held_reads);
    let file = file();
    let mut running = Vec::new();
    while let Some(one) = submit_waiting(&driver, opens(2, &file)) {
        running.push(one);
    }
    turns(&driver);
    assert_eq!(running.len(), 2, "half of 8 places");
    handle.set_script(|sqe| if sqe.opcode == opcode::Read::CODE { Act::Give(1) } else { Act::Give(0) });
    let mut other = submit(&driver, opens(4, &file));
    turns(&driver);
    finished(&mut other);
    assert!(driver.waiting_room(&opens(5, &file)).is_none());
    drop(running);
    turns(&driver);
    is_empty(&driver, &handle, 32, 0);
}

#[test]
fn programs_without_room_delay_no_others() {
    let (driver, _) = driver(8, |sqe| if sqe.opcode == opcode::Write::CODE { Act::Hold } else { Act::Do });
    let file = file();
    // These operations never complete. There is room for one more program, but not for eight steps.
    let held: Vec<_> = (0..19).map(|n| submit(&driver, Program::of(write(&file, n, pattern(1))))).collect();
    turns(&driver);
    let mut wide = submit(&driver, chain((0..8).map(|n| write(&file, n, pattern(1)))));
    file.write_all_at(&pattern(9), 0).unwrap();
    let mut narrow = submit(&driver, Program::of(read(&file, 0, 9)));
    turns(&driver);
    assert!(matches!(poll(&mut wide), Some(Ended::Fallback(_, None))), "it runs by plain calls at once");
    assert_eq!(finished(&mut narrow).take::<Read>(0).into_bytes(), pattern(9));
    drop(held);
}

#[test]
fn a_program_that_has_begun_never_lacks_room_to_go_on() {
    // Each step but the last is short, so the rest is submitted again while other programs fill the ring.
    let (driver, handle) = driver(8, |sqe| if sqe.len > 1 { Act::Short(1) } else { Act::Hold });
    let file = file();
    let mut first = submit(&driver, Program::of(write(&file, 0, pattern(3))));
    let others: Vec<_> = (0..30).map(|n| submit(&driver, Program::of(write(&file, 100 + n, pattern(1))))).collect();
    turns(&driver);
    assert!(poll(&mut first).is_none(), "its last byte is in flight");
    handle.set_script(|_| Act::Do);
    handle.proceed();
    turns(&driver);
    assert_eq!(outcomes(&finished(&mut first)), [StepOutcome::Done(3)]);
    assert_eq!(contents(&file)[..3], pattern(3));
    drop(others);
}

#[test]
fn cancels_that_find_nothing_share_one_timer() {
    let (driver, handle) = driver(8, held_reads);
    let file = file();
    let running: Vec<_> = (0..8).filter_map(|_| submit_waiting(&driver, Program::of(waits(&file)))).collect();
    assert_eq!(running.len(), 8);
    turns(&driver);
    for _ in 0..8 {
        handle.fail_cancel(Errno::NOENT);
    }
    drop(running);
    turns(&driver);
    assert_eq!(driver.in_flight(), 8 + 1, "all that wait, and the timer");
    assert!(reads(&driver));
    handle.elapse();
    turns(&driver);
    is_empty(&driver, &handle, 8, 0);
}

/// Returns a driver and the number of bytes that its reads and writes have moved.
fn metered(capacity: usize) -> (Arc<RingDriver>, Arc<AtomicUsize>) {
    let moved = Arc::new(AtomicUsize::new(0));
    let meter = Arc::clone(&moved);
    let (driver, _) = driver(capacity, move |sqe| {
        meter.fetch_add(sqe.len as usize, Ordering::Relaxed);
        Act::Do
    });
    (driver, moved)
}

#[test]
fn a_turn_moves_a_bounded_number_of_bytes() {
    const TURN: usize = 1 << 20;
    for (len, number) in [(1 << 20, 20), (300_000, 40), (64 << 10, 100)] {
        let (driver, moved) = metered(128);
        let file = file();
        file.set_len(len as u64).unwrap();
        let mut running: Vec<_> = (0..number).map(|_| submit(&driver, Program::of(read(&file, 0, len)))).collect();
        let mut turns = 0;
        while driver.turn() {
            turns += 1;
            assert!(moved.swap(0, Ordering::Relaxed) <= TURN, "reads of {len} bytes");
        }
        assert!(turns + 1 >= number * len / TURN, "{turns} turns");
        running.iter_mut().for_each(|running| drop(finished(running)));
    }
}

#[test]
fn a_turn_does_a_bounded_number_of_operations() {
    let (driver, moved) = metered(128);
    let file = file();
    let mut running: Vec<_> = (0..5000).map(|n| submit(&driver, Program::of(write(&file, n, [7].to_vec())))).collect();
    while driver.turn() {
        assert!(moved.swap(0, Ordering::Relaxed) <= 1024 + 128);
    }
    running.iter_mut().for_each(|running| drop(finished(running)));
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Wait(usize),
    Disk,
    Drop(usize),
    Forget(usize),
    /// A cancel finds nothing.
    Miss,
    Elapse,
    Answer,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        10 => (0usize..3).prop_map(Deed::Wait),
        10 => Just(Deed::Disk),
        5 => any::<usize>().prop_map(Deed::Drop),
        1 => any::<usize>().prop_map(Deed::Forget),
        1 => Just(Deed::Miss),
        1 => Just(Deed::Elapse),
        1 => Just(Deed::Answer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_full_ring_behaves_like_no_ring(
        capacity in prop_oneof![Just(8usize), Just(32)],
        deeds in proptest::collection::vec(deed(), 1..300),
    ) {
        let answers = Arc::new(Mutex::new(false));
        let script_answers = Arc::clone(&answers);
        let (driver, handle) = driver(capacity, move |sqe| match sqe.opcode {
            opcode::OpenAt2::CODE | opcode::Close::CODE => Act::Give(0),
            _ if *script_answers.lock().unwrap() => Act::Do,
            opcode::Write::CODE => Act::Hold,
            opcode::Read::CODE if sqe.offset == u64::MAX => Act::Hold,
            _ => Act::Do,
        });
        let (alive, slow) = (Arc::new(AtomicUsize::new(0)), file());
        let (mut running, mut forgotten, mut seen) = (Vec::new(), 0, HashSet::new());
        for (n, &deed) in deeds.iter().enumerate() {
            match deed {
                Deed::Wait(files) => running.extend(submit_waiting(&driver, opens(files, &slow))),
                Deed::Disk => running.push(submit(&driver, Program::of(write(&slow, 0, counted(8, &alive))))),
                Deed::Drop(n) if !running.is_empty() => drop(running.swap_remove(n % running.len())),
                Deed::Forget(n) if !running.is_empty() => {
                    #[expect(clippy::disallowed_methods, reason = "this is what is tested")]
                    std::mem::forget(running.swap_remove(n % running.len()));
                    forgotten += 1;
                }
                Deed::Drop(_) | Deed::Forget(_) => {}
                Deed::Miss => handle.fail_cancel(Errno::NOENT),
                Deed::Elapse => handle.elapse(),
                Deed::Answer => {
                    *answers.lock().unwrap() = true;
                    handle.proceed();
                    *answers.lock().unwrap() = false;
                }
            }
            if n % 3 == 0 {
                seen.insert(reads(&driver));
            }
        }
        drop(running);
        turns(&driver);
        *answers.lock().unwrap() = true;
        handle.proceed();
        for _ in 0..TURNS_MAX {
            handle.elapse();
            turns(&driver);
        }
        is_empty(&driver, &handle, capacity, forgotten);
        prop_assert!(alive.load(Ordering::SeqCst) <= forgotten);
        prop_assert!(reads(&driver), "there is room again; before: {:?}", seen);
    }
}
