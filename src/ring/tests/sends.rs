//! Sends of many sockets: all results arrive at once, each at its own send; sends without room are reported.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::opcode;
use proptest::prelude::*;
use rustix::io::Errno;

use super::super::fake::Act;
use super::super::key::{About, Key};
use super::super::net::ZeroCopy;
use super::super::net::in_flight::Sends;
use super::super::net::send::{SendBatch, SendOp};
use super::{driver, file, finished, read, submit};
use crate::buf::lease;
use crate::buf::origin::OriginSlice;
use crate::buf::pool::lease_block;
use crate::buf::queue::Queue;
use crate::counters::Snapshot;
use crate::ops::program::Program;
use crate::ring::driver::RingDriver;
use crate::ring::net::sockets::Sockets;
use crate::sys::uring::{Completion, Setup, Uring};

fn queue(pieces: &[&[u8]]) -> Queue {
    let mut queue = Queue::default();
    pieces.iter().for_each(|piece| _ = queue.push(OriginSlice::new(piece)));
    queue
}

fn kept(len: usize) -> bytes::Bytes {
    let mut lease = lease_block(len);
    lease.extend_from_slice(&super::pattern(len));
    lease.freeze()
}

fn send_batch(send_ops: impl IntoIterator<Item = (Arc<File>, Queue)>) -> SendBatch {
    let mut send_batch = SendBatch::default();
    send_batch.send_ops.extend(send_ops.into_iter().map(|(file, queue)| SendOp::new(file.into(), queue, None)));
    send_batch
}

fn results(send_batch: &SendBatch) -> Vec<Result<usize, Errno>> {
    send_batch.send_ops.iter().map(|send_op| send_op.result.map_err(Errno::from_raw_os_error)).collect()
}

const CANCELED: Result<usize, Errno> = Err(Errno::CANCELED);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 64 }))]

    #[test]
    fn each_gets_its_own_result_and_its_own_bytes(
        entries in 3u32..6,
        lens in proptest::collection::vec(proptest::collection::vec(1usize..3000, 1..4), 1..40),
        shorts in proptest::collection::vec(0u32..4000, 40),
        reversed in any::<bool>(),
    ) {
        let mut nth = 0;
        let shorts_again = shorts.clone();
        let (driver, handle) = driver(1 << entries, move |_| {
            nth += 1;
            match shorts_again[nth - 1] {
                n if n > 3000 => Act::Fail(Errno::AGAIN),
                n => Act::Short(n + 1),
            }
        });
        if reversed {
            handle.reverse();
        }
        let files: Vec<_> = lens.iter().map(|_| file()).collect();
        let contents: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(n, lens)| vec![n as u8; lens.iter().sum()]).collect();
        let queues = lens.iter().zip(&contents).map(|(lens, content)| {
            let mut queue = Queue::default();
            lens.iter().fold(0, |at, len| {
                queue.push(OriginSlice::new(&content[at..at + len]));
                at + len
            });
            queue
        });
        let mut send_batch = send_batch(files.iter().cloned().zip(queues));
        driver.send(&mut send_batch);
        prop_assert_eq!(driver.in_flight(), 0);
        for ((result, short), (file, content)) in results(&send_batch).into_iter().zip(shorts).zip(files.iter().zip(&contents)) {
            match result {
                Ok(n) => {
                    prop_assert!(n <= content.len() && super::contents(file) == content[..n]);
                }
                Err(e) => prop_assert!(short > 3000 && e == Errno::AGAIN),
            }
        }
    }
}

#[test]
fn more_than_the_ring_has_room_for_leaves_in_few_calls() {
    let (driver, handle) = driver(16, |_| Act::Give(5));
    let mut send_batch = send_batch((0..50).map(|_| (file(), queue(&[b"hello"]))));
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [Ok(5); 50]);
    assert_eq!(handle.enters(), 4);
    assert_eq!(driver.in_flight(), 0);
}

#[test]
fn a_kernel_that_is_busy_is_asked_again() {
    let (driver, handle) = driver(16, |_| Act::Give(1));
    handle.fail_enters([Errno::AGAIN, Errno::BUSY, Errno::INTR, Errno::INTR].into_iter().cycle().take(400));
    handle.fail_enters([Errno::INTR; 20]);
    let mut send_batch = send_batch((0..20).map(|_| (file(), queue(&[b"x"]))));
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [Ok(1); 20]);
}

#[test]
fn rejected_sends_are_left_to_plain_calls() {
    let (driver, handle) = driver(16, |_| Act::Give(1));
    handle.take_at_most(3);
    handle.fail_enters([Errno::INTR, Errno::PERM]);
    let mut send_batch = send_batch((0..20).map(|_| (file(), queue(&[b"x"]))));
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [CANCELED; 20]);
    assert!(send_batch.send_ops.iter().all(|send_op| send_op.queue.len() == 1), "nothing is lost");
    assert!(driver.closed().is_some());
    assert_eq!(driver.in_flight(), 0);
    let enters = handle.enters();
    send_batch.send_ops.truncate(1);
    driver.send(&mut send_batch);
    assert_eq!((results(&send_batch), handle.enters()), (vec![CANCELED], enters));
}

#[test]
fn a_forked_child_sends_nothing() {
    let (driver, handle) = driver(16, |_| Act::Give(1));
    handle.fork();
    let mut send_batch = send_batch([(file(), queue(&[b"x"]))]);
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [CANCELED]);
}

#[test]
fn a_result_that_never_comes_costs_the_stream_and_its_memory() {
    let before = Snapshot::now();
    let (driver, _) = driver(16, |sqe| if sqe.len == 4 { Act::Hold } else { Act::Give(5) });
    let mut send_batch = send_batch([(file(), queue(&[b"hello"])), (file(), queue(&[b"lost"]))]);
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [Ok(5), Err(Errno::IO)]);
    assert_eq!((send_batch.send_ops[0].queue.len(), send_batch.send_ops[1].queue.len()), (5, 0));
    assert!(Snapshot::now().since(&before).ring_leaks >= 1);
}

#[test]
fn programs_end_while_others_send() {
    let (driver, _) = driver(16, |sqe| if sqe.opcode == opcode::Read::CODE { Act::Do } else { Act::Give(1) });
    let mut running = submit(&driver, Program::of(read(&file(), 0, 10)));
    driver.turn();
    let mut send_batch = send_batch([(file(), queue(&[b"x"]))]);
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [Ok(1)]);
    finished(&mut running);
}

fn zero_copy(send_batch: &mut SendBatch) -> ZeroCopy {
    let on = Arc::new(AtomicBool::new(true));
    send_batch.send_ops.iter_mut().for_each(|send_op| send_op.zero_copy = Some(Arc::clone(&on)));
    on
}

#[test]
fn memory_that_was_not_copied_is_kept_until_the_kernel_lets_go() {
    let bytes = kept(40_000);
    let address = bytes.as_ptr();
    let (driver, handle) = driver(16, |_| Act::GiveAndKeep(40_000));
    let mut send_batch = send_batch([(file(), queue(&[&bytes]))]);
    let on = zero_copy(&mut send_batch);
    drop(bytes);
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [Ok(40_000)]);
    send_batch.send_ops[0].queue.advance(40_000);
    assert_eq!(driver.in_flight(), 1, "a notification is owed");
    let leased = |blocks: usize| {
        let leases: Vec<_> = (0..blocks).map(|_| lease(64 << 10)).collect();
        leases.iter().any(|lease| lease.spare_len() > 0 && { lease.as_ref().as_ptr() == address })
    };
    assert!(!leased(600), "leased anew while the kernel reads it");
    handle.notify();
    driver.turn();
    assert_eq!(driver.in_flight(), 0);
    assert!(leased(600), "it is free again");
    assert!(on.load(Ordering::Relaxed));
}

#[test]
fn a_notification_in_the_same_round_is_no_second_result() {
    let mut sends = Sends::default();
    let key = Key::new(0, 0);
    let data = About::Send(key).user_data();
    let first = Completion { key: data, result: Ok(5), more: true, notification: false, buffer: None };
    let second = Completion { result: Ok(0), more: false, notification: true, ..first };
    assert!(sends.complete(key, first).is_none() && sends.complete(key, second).is_none());
    assert_eq!(sends.ended, [(0, Ok(5))]);
}

#[test]
fn only_long_pieces_of_kept_memory_go_without_a_copy() {
    use opcode::{Send, SendMsg, SendMsgZc};
    let codes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&codes);
    let (driver, handle) = driver(16, move |sqe| {
        seen.lock().unwrap().push(sqe.opcode);
        Act::Give(1)
    });
    let (long, short) = (kept(20_000), kept(10_000));
    let cases: [(&[&[u8]], u8, usize); 5] = [
        (&[b"copied"], Send::CODE, 6),
        (&[&short], Send::CODE, 10_000),
        (&[&long, b"more"], SendMsgZc::CODE, 20_000),
        (&[b"head", &long], Send::CODE, 4),
        (&[&short, b"x", &short], SendMsg::CODE, 20_001),
    ];
    for (pieces, code, offered) in cases {
        let mut send_batch = send_batch([(file(), queue(pieces))]);
        let on = zero_copy(&mut send_batch);
        driver.send(&mut send_batch);
        assert_eq!((codes.lock().unwrap().pop(), send_batch.send_ops[0].offered), (Some(code), offered));
        on.store(false, Ordering::Relaxed);
        driver.send(&mut send_batch);
        assert_ne!(codes.lock().unwrap().pop(), Some(SendMsgZc::CODE), "it was turned off");
    }
    handle.without(SendMsgZc::CODE);
}

#[test]
fn a_kernel_that_copies_after_all_is_not_asked_again() {
    let ring = Uring::new(Setup::default()).inspect_err(|refused| crate::skips::skip("io_uring", refused));
    let Ok(uring) = ring else { return };
    if !uring.supports(opcode::SendMsgZc::CODE) {
        return crate::skips::skip("SENDMSG_ZC", "the ring of this kernel has none");
    }
    let driver = RingDriver::new(Box::new(uring), 0, false, Sockets::new(&Setup::default()), Box::new(|| {}));
    let before = Snapshot::now();
    // Loopback always copies.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let bytes = kept(40_000);
    let mut send_batch = SendBatch::default();
    send_batch.send_ops.push(SendOp::new(Arc::new(client).into(), queue(&[&bytes]), None));
    let on = zero_copy(&mut send_batch);
    driver.send(&mut send_batch);
    assert_eq!(results(&send_batch), [Ok(40_000)]);
    let mut got = vec![0; 40_000];
    server.read_exact(&mut got).unwrap();
    assert!(got == bytes);
    while driver.in_flight() > 0 {
        driver.turn();
        std::thread::yield_now();
    }
    assert!(!on.load(Ordering::Relaxed));
    assert!(Snapshot::now().since(&before).zero_copy_copied >= 1);
}

#[test]
fn a_ring_that_ends_leaks_what_is_never_notified() {
    let before = Snapshot::now();
    let bytes = kept(40_000);
    let (driver, handle) = driver(16, |_| Act::GiveAndKeep(40_000));
    handle.ignore_cancels();
    let mut send_batch = send_batch([(file(), queue(&[&bytes]))]);
    let _on = zero_copy(&mut send_batch);
    driver.send(&mut send_batch);
    driver.shutdown(Duration::from_millis(1));
    assert!(Snapshot::now().since(&before).ring_leaks >= 1);
}

#[test]
fn a_full_socket_says_so_at_once() {
    let ring = Uring::new(Setup::default()).inspect_err(|refused| crate::skips::skip("io_uring", refused));
    let Ok(uring) = ring else { return };
    let driver = RingDriver::new(Box::new(uring), 0, false, Sockets::new(&Setup::default()), Box::new(|| {}));
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let ours = Arc::new(ours);
    let mut sent = 0;
    loop {
        let mut send_batch = SendBatch::default();
        send_batch.send_ops.push(SendOp::new(Arc::clone(&ours).into(), queue(&[&[7; 50_000]]), None));
        driver.send(&mut send_batch);
        assert_eq!(driver.in_flight(), 0);
        match send_batch.send_ops[0].result {
            Ok(n) => sent += n,
            Err(e) => {
                assert_eq!(Errno::from_raw_os_error(e), Errno::AGAIN);
                break;
            }
        }
    }
    drop(ours);
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert_eq!(got, vec![7; sent]);
}
