//! Unit tests of `ingress`.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, ReadBuf};

use super::*;
use crate::net::options::Options;

/// Returns the outcome of one read after a receive has ended with `errno`, and of the next.
async fn reads_after(errno: Errno) -> [Poll<io::Result<usize>>; 2] {
    let (ours, theirs) = UnixStream::pair().unwrap();
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).unwrap();
    }
    let mut theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
    let turn = Turn::current();
    let egress = Egress::new(ours.into(), Arc::clone(&turn), Options::default()).unwrap();
    let ingress = Ingress::of(&egress, turn);
    ingress.arrived(Arrival::Ended(Ending::Failed(errno.raw_os_error())));
    theirs.write_all(b"later").await.unwrap();
    egress.io().unwrap().readable().await.unwrap().retain_ready();
    let mut cx = Context::from_waker(Waker::noop());
    [(); 2].map(|()| {
        let mut memory = [0; 16];
        let mut buf = ReadBuf::new(&mut memory);
        ingress.poll_receive(Some(&mut cx), &mut buf).map_ok(|()| buf.filled().len())
    })
}

#[tokio::test]
async fn an_error_of_the_kernel_is_returned_once() {
    let [first, second] = reads_after(Errno::CONNRESET).await;
    assert!(matches!(first, Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::ConnectionReset));
    assert!(matches!(second, Poll::Ready(Ok(5))));
}

#[tokio::test]
async fn nothing_is_read_behind_lost_bytes() {
    for read in reads_after(Errno::IO).await {
        assert!(matches!(read, Poll::Ready(Err(e)) if Errno::from_io_error(&e) == Some(Errno::IO)));
    }
}

/// Stops a receive, before the ring has it or after, and returns what is left in the socket.
async fn stopped(is_submitted: bool) -> Vec<u8> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut left = ours.try_clone().unwrap();
    ours.set_nonblocking(true).unwrap();
    let turn = Turn::current();
    let egress = Egress::new(ours.into(), Arc::clone(&turn), Options::default()).unwrap();
    let ingress = Ingress::of(&egress, turn);
    let mut memory = [0; 16];
    let mut cx = Context::from_waker(Waker::noop());
    assert!(ingress.poll_receive(Some(&mut cx), &mut ReadBuf::new(&mut memory)).is_pending());
    if is_submitted {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    egress.set_send_strategy(SendStrategy::Epoll);
    let stops = poll_fn(|cx| {
        assert!(ingress.poll_receive(Some(cx), &mut ReadBuf::new(&mut memory)).is_pending());
        if ingress.is_idle() { Poll::Ready(()) } else { Poll::Pending }
    });
    tokio::time::timeout(Duration::from_secs(60), stops).await.expect("the receive ends");
    theirs.write_all(b"later").unwrap();
    drop(theirs);
    let mut bytes = Vec::new();
    left.set_nonblocking(false).unwrap();
    left.read_to_end(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_receive_that_is_stopped_leaves_later_bytes_in_the_socket() {
    for is_submitted in [false, true] {
        assert_eq!(stopped(is_submitted).await, b"later", "submitted: {is_submitted}");
    }
}
