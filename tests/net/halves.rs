//! Behavior that streams share with those of tokio: readiness, calls that do not wait, peeking, halves, and conversions.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::time::timeout;

use testkit::HANGS;
use testkit::family::Family;
use testkit::http::watched;

/// Of the paused clock: it passes only when no task can run.
const A_WHILE: Duration = Duration::from_millis(100);

async fn waits<T>(future: impl Future<Output = T>) -> bool {
    timeout(A_WHILE, future).await.is_err()
}

fn would_block<T: std::fmt::Debug>(result: std::io::Result<T>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// Runs `test` without waiting for the clock.
fn paused<R: Future<Output = ()>>(test: impl FnOnce() -> R + Send + 'static) {
    watched(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(test());
    });
}

macro_rules! tests {
    ($module:ident, $stream:ty, $std:ty) => {
        mod $module {
            use super::*;

            #[test]
            fn reads_that_do_not_wait_take_what_was_peeked() {
                paused(async || {
                    let (ours, mut theirs) = <$stream as Family>::pair().await;
                    let mut buf = [0; 16];
                    would_block(ours.try_read(&mut buf));
                    assert!(waits(ours.readable()).await);
                    assert!(waits(ours.peek(&mut buf)).await);
                    theirs.write_all(b"hello").await.unwrap();
                    ours.readable().await.unwrap();
                    for _ in 0..2 {
                        assert_eq!(ours.peek(&mut buf).await.unwrap(), 5);
                        assert_eq!(&buf[..5], b"hello");
                    }
                    assert_eq!(ours.peek(&mut buf[..1]).await.unwrap(), 1);
                    let mut behind = ReadBuf::new(&mut buf);
                    behind.put_slice(b"ab");
                    assert_eq!(poll_fn(|cx| ours.poll_peek(cx, &mut behind)).await.unwrap(), 5);
                    assert_eq!(behind.filled(), b"abhello");
                    let (first, rest) = buf.split_at_mut(2);
                    let mut slices = [&mut [][..], first, rest].map(IoSliceMut::new);
                    assert_eq!(ours.try_read_vectored(&mut slices).unwrap(), 2);
                    assert_eq!(&buf[..2], b"he");
                    ours.readable().await.unwrap();
                    assert_eq!(ours.peek(&mut buf).await.unwrap(), 3);
                    let mut all = b"he".to_vec();
                    assert_eq!(ours.try_read_buf(&mut all).unwrap(), 3);
                    assert_eq!(all, b"hello");
                    would_block(ours.try_read(&mut buf));
                    would_block(ours.try_read_buf(&mut all));
                    assert!(waits(ours.readable()).await);
                    drop(theirs);
                    let ready = ours.ready(Interest::READABLE).await.unwrap();
                    assert!(ready.is_readable() && ready.is_read_closed() && !ready.is_writable());
                    assert_eq!(ours.peek(&mut buf).await.unwrap(), 0);
                    assert_eq!(ours.try_read(&mut buf).unwrap(), 0);
                });
            }

            #[test]
            fn a_peek_grows_with_what_arrives() {
                paused(async || {
                    let (mut ours, mut theirs) = <$stream as Family>::pair().await;
                    let mut buf = [0; 16];
                    theirs.write_all(b"GET").await.unwrap();
                    assert_eq!(ours.peek(&mut buf).await.unwrap(), 3);
                    theirs.write_all(b" / HTTP").await.unwrap();
                    while ours.peek(&mut buf).await.unwrap() < 10 {
                        tokio::task::yield_now().await;
                    }
                    assert_eq!(&buf[..10], b"GET / HTTP");
                    ours.read_exact(&mut buf[..10]).await.unwrap();
                    assert_eq!(&buf[..10], b"GET / HTTP");
                });
            }

            #[test]
            fn writes_that_do_not_wait_fill_the_stream_and_then_it_is_not_writable() {
                paused(async || {
                    let (mut ours, mut theirs) = <$stream as Family>::pair().await;
                    let ready = ours.ready(Interest::READABLE | Interest::WRITABLE).await.unwrap();
                    assert!(ready.is_writable() && !ready.is_readable() && !ready.is_write_closed());
                    assert!(ours.ready(Interest::PRIORITY).await.is_err());
                    let (mut written, piece) = (0, [7; 4000]);
                    loop {
                        match ours.try_write_vectored(&[IoSlice::new(&piece[..1000]), IoSlice::new(&piece[1000..])]) {
                            Ok(n) => written += n,
                            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                                if waits(ours.writable()).await {
                                    break;
                                }
                            }
                            Err(e) => panic!("{e}"),
                        }
                    }
                    would_block(ours.try_write(&[7; 1 << 20]));
                    let (read, writable) = tokio::join!(
                        async {
                            theirs.read_exact(&mut vec![0; written]).await.unwrap();
                            theirs
                        },
                        ours.writable()
                    );
                    (theirs, _) = (read, writable.unwrap());
                    assert_eq!(ours.try_write(b"more").unwrap(), 4);
                    theirs.read_exact(&mut piece.clone()[..4]).await.unwrap();
                    ours.shutdown().await.unwrap();
                    assert_eq!(ours.try_write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
                    assert!(ours.ready(Interest::WRITABLE).await.unwrap().is_write_closed());
                });
            }

            #[test]
            fn a_stream_whose_socket_is_full_is_writable_until_a_write_is_refused() {
                paused(async || {
                    let (mut ours, _theirs) = <$stream as Family>::pair().await;
                    while ours.queued() == 0 {
                        assert_eq!(ours.try_write(&[7; 1000]).unwrap(), 1000);
                        ours.flush().await.unwrap();
                    }
                    assert!(!waits(ours.writable()).await);
                    while ours.try_write(&[7; 1000]).is_ok() {}
                    assert!(waits(ours.writable()).await);
                    ours.shutdown().await.unwrap();
                    assert!(!waits(ours.writable()).await, "the next write fails");
                    assert_eq!(ours.try_write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
                });
            }

            #[test]
            fn a_full_stream_whose_peer_leaves_is_writable() {
                paused(async || {
                    let (ours, theirs) = <$stream as Family>::pair().await;
                    let piece = vec![7; 1 << 20];
                    while ours.try_write(&piece).is_ok() || !waits(ours.writable()).await {}
                    drop(theirs);
                    ours.writable().await.unwrap();
                    while ours.try_write(&piece).is_ok() {
                        tokio::task::yield_now().await;
                    }
                    assert!(ours.ready(Interest::WRITABLE).await.unwrap().is_write_closed());
                });
            }

            #[test]
            fn halves_write_slices_flush_and_shut_down() {
                async fn check(write: &mut (impl AsyncWrite + Unpin), queued: impl Fn() -> usize) {
                    assert!(write.is_write_vectored());
                    for sent in [false, true] {
                        let slices = [IoSlice::new(b"one"), IoSlice::new(b"two")];
                        assert_eq!(write.write_vectored(&slices).await.unwrap(), 6);
                        if sent {
                            write.flush().await.unwrap();
                        }
                        assert_eq!(queued(), if sent { 0 } else { 6 });
                    }
                }

                paused(async || {
                    let mut got = [0; 12];
                    let (mut ours, mut theirs) = <$stream as Family>::pair().await;
                    let handle = ours.handle();
                    let queued = || handle.stats().unwrap().queued;
                    check(&mut ours.split().1, queued).await;
                    theirs.read_exact(&mut got).await.unwrap();
                    assert_eq!(&got, b"onetwoonetwo");
                    let (mut read, mut write) = ours.into_split();
                    check(&mut write, queued).await;
                    theirs.read_exact(&mut got).await.unwrap();
                    assert_eq!(&got, b"onetwoonetwo");
                    write.shutdown().await.unwrap();
                    assert_eq!(theirs.read(&mut got).await.unwrap(), 0);
                    assert_eq!(write.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
                    theirs.write_all(b"still").await.unwrap();
                    read.read_exact(&mut got[..5]).await.unwrap();

                    let (mut ours, mut theirs) = <$stream as Family>::pair().await;
                    ours.split().1.shutdown().await.unwrap();
                    assert_eq!(theirs.read(&mut got).await.unwrap(), 0);
                });
            }

            #[test]
            fn owned_halves_work_in_two_tasks_and_the_write_half_ends_the_stream() {
                paused(async || {
                    const LEN: usize = 1 << 20;
                    let (ours, mut theirs) = <$stream as Family>::pair().await;
                    let addrs = format!("{:?} {:?}", ours.local_addr().unwrap(), ours.peer_addr().unwrap());
                    let (mut read, mut write) = ours.into_split();
                    let of_read = format!("{:?} {:?}", read.local_addr().unwrap(), read.peer_addr().unwrap());
                    let of_write = format!("{:?} {:?}", write.local_addr().unwrap(), write.peer_addr().unwrap());
                    assert_eq!([&of_read, &of_write], [&addrs; 2]);
                    let writer = tokio::spawn(async move {
                        write.write_all(&vec![7; LEN]).await.unwrap();
                        // The peer does not read yet, so that bytes are queued.
                        drop(write);
                    });
                    let mut buf = vec![0; LEN];
                    theirs.write_all(b"ask").await.unwrap();
                    read.read_exact(&mut buf[..3]).await.unwrap();
                    buf.clear();
                    theirs.read_to_end(&mut buf).await.unwrap();
                    assert_eq!(buf.len(), LEN);
                    writer.await.unwrap();
                    theirs.write_all(b"still").await.unwrap();
                    assert_eq!(read.peek(&mut buf).await.unwrap(), 5);
                    assert_eq!(read.try_read(&mut buf).unwrap(), 5);
                    drop(theirs);
                    assert_eq!(read.read(&mut buf).await.unwrap(), 0);
                });
            }

            #[test]
            fn halves_of_one_stream_are_reunited() {
                paused(async || {
                    let (one, mut theirs) = <$stream as Family>::pair().await;
                    let (other, _theirs) = <$stream as Family>::pair().await;
                    let ((read, write), (other_read, other_write)) = (one.into_split(), other.into_split());
                    let error = read.reunite(other_write).unwrap_err();
                    assert_eq!(error.to_string(), "the halves are not of the same stream");
                    let (read, other_write) = (error.0, error.1);
                    other_write.forget();
                    assert!(other_read.as_ref().try_write(b"open").is_ok());
                    let mut one = write.reunite(read).unwrap();
                    let (mut read, mut write) = one.split();
                    write.write_all(b"ping").await.unwrap();
                    theirs.read_exact(&mut [0; 4]).await.unwrap();
                    theirs.write_all(b"pong").await.unwrap();
                    read.read_exact(&mut [0; 4]).await.unwrap();
                    assert!(waits(theirs.read(&mut [0])).await, "borrowed halves do not end the stream");
                });
            }

            #[test]
            fn std_gets_the_socket_unless_bytes_would_be_missed() {
                paused(async || {
                    let (mut ours, mut theirs) = <$stream as Family>::pair().await;
                    ours.write_all(b"before ").await.unwrap();
                    let mut std: $std = ours.into_std().unwrap();
                    std.write_all(b"after").unwrap();
                    theirs.read_exact(&mut [0; 12]).await.unwrap();
                    let mut ours = <$stream>::try_from(std).unwrap();
                    ours.write_all(b"again").await.unwrap();
                    theirs.read_exact(&mut [0; 5]).await.unwrap();

                    let mut written = 0;
                    while let Ok(n) = timeout(A_WHILE, ours.write(&[7; 4096])).await {
                        written += n.unwrap();
                    }
                    would_block(ours.into_std());
                    let mut got = Vec::new();
                    theirs.read_to_end(&mut got).await.unwrap();
                    assert_eq!(got.len(), written, "a drop sends the queue");
                });
                paused(async || {
                    let (mut ours, mut theirs) = <$stream as Family>::pair().await;
                    theirs.write_all(b"two").await.unwrap();
                    ours.read_exact(&mut [0]).await.unwrap();
                    assert_eq!(ours.into_std().unwrap().read(&mut [0; 8]).unwrap(), 2);
                });
            }
        }
    };
}

tests!(tcp, TcpStream, std::net::TcpStream);
tests!(unix, UnixStream, std::os::unix::net::UnixStream);

#[tokio::test]
async fn options_of_tcp_are_set_and_returned() {
    let (ours, mut theirs) = TcpStream::pair().await;
    assert!(ours.nodelay().unwrap());
    ours.set_nodelay(false).unwrap();
    assert!(!ours.nodelay().unwrap());
    assert_eq!(ours.linger().unwrap(), None);
    ours.set_linger(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(ours.linger().unwrap(), Some(Duration::from_secs(1)));
    ours.set_zero_linger().unwrap();
    assert_eq!(ours.linger().unwrap(), Some(Duration::ZERO));
    ours.try_write(b"bytes").unwrap();
    drop(ours);
    assert_eq!(theirs.read_to_end(&mut Vec::new()).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn an_error_that_a_dropped_write_half_meets_is_returned_by_the_read_half() {
    paused(async || {
        let (ours, theirs) = TcpStream::pair().await;
        theirs.set_zero_linger().unwrap();
        drop(theirs);
        let (mut read, write) = ours.into_split();
        assert_eq!(write.try_write(b"queued").unwrap(), 6);
        drop(write);
        assert_eq!(read.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(read.read(&mut [0; 8]).await.unwrap(), 0);
    });
}

#[tokio::test]
async fn a_listener_is_polled() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    assert!(listener.poll_accept(&mut Context::from_waker(Waker::noop())).is_pending());
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = timeout(HANGS, poll_fn(|cx| listener.poll_accept(cx)));
    let (stream, peer) = accepted.await.expect("a connection").unwrap();
    assert_eq!((peer, stream.local_addr().unwrap()), (client.local_addr().unwrap(), client.peer_addr().unwrap()));
}

#[tokio::test]
async fn addresses_name_unix_sockets() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    if testkit::portable("abstract names and credentials are not queried") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = format!("millstream halves {}", std::process::id());
    for addr in
        [SocketAddr::from_pathname(dir.path().join("socket")).unwrap(), SocketAddr::from_abstract_name(name).unwrap()]
    {
        let listener = UnixListener::bind_addr(&addr).await.unwrap();
        assert_eq!(format!("{:?}", listener.local_addr().unwrap()), format!("{addr:?}"));
        let client = UnixStream::connect_addr(&addr).await.unwrap();
        let accepted = timeout(HANGS, poll_fn(|cx| listener.poll_accept(cx)));
        let (stream, _) = accepted.await.expect("a connection").unwrap();
        let who = stream.peer_cred().unwrap();
        assert_eq!(who, client.peer_cred().unwrap());
        assert_eq!(who.pid(), Some(std::process::id().cast_signed()));
    }
    let unnamed = UnixStream::pair().unwrap().0.local_addr().unwrap();
    assert_eq!(UnixStream::connect_addr(&unnamed).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut bind = pin!(UnixListener::bind_addr(&unnamed));
    let bound = bind.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(bound, Poll::Ready(Err(e)) if e.kind() == ErrorKind::InvalidInput));
}
