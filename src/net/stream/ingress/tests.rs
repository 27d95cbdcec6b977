//! Unit tests of `ingress`.

use std::os::unix::net::UnixStream;

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
