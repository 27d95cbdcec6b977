//! Streams under stress: every byte once and in order, few calls, errors at the right call, no leaks.

use std::io::{IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream::net::{TcpListener, TcpStream, UnixStream};
use sha2::{Digest, Sha256};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::family::Family;
use testkit::{alone, noise};

fn digest(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

fn shrink_buffers(ours: &impl AsFd, theirs: &impl AsFd) {
    SockRef::from(ours).set_send_buffer_size(4096).unwrap();
    SockRef::from(theirs).set_recv_buffer_size(4096).unwrap();
}

/// Sends `payload` in pieces of various sizes and reads at most `bite` bytes at a time.
async fn transfer<S: Family>(
    payload: Vec<u8>,
    pieces: impl Fn(usize) -> usize + Send + 'static,
    bite: usize,
    vectored: bool,
) {
    let (mut ours, mut theirs) = S::pair_with(Duration::from_micros(200)).await;
    SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    let expected = digest(&payload);
    let len = payload.len();
    let writer = tokio::spawn(async move {
        let (mut at, mut n) = (0, 0);
        while at < payload.len() {
            let piece = &payload[at..payload.len().min(at + pieces(n))];
            if vectored {
                let middle = piece.len() / 2;
                let slices = [IoSlice::new(&piece[..middle]), IoSlice::new(&[]), IoSlice::new(&piece[middle..])];
                at += ours.write_vectored(&slices).await.unwrap();
            } else {
                at += ours.write(piece).await.unwrap();
            }
            n += 1;
            if n % 7 == 0 {
                yield_now().await;
            }
        }
        ours.shutdown().await.unwrap();
        ours.flushed().await.unwrap();
        assert_eq!(ours.queued(), 0, "nothing is queued after a flush");
    });
    let mut got = Vec::with_capacity(len);
    let mut buf = vec![0; bite];
    loop {
        match theirs.read(&mut buf).await.unwrap() {
            0 => break,
            n => got.extend_from_slice(&buf[..n]),
        }
    }
    writer.await.unwrap();
    assert_eq!(got.len(), len);
    assert_eq!(digest(&got), expected);
}

#[tokio::test]
async fn a_reader_of_single_bytes_gets_every_byte_in_order() {
    let pieces = |n| [1, 300, 7, 20_000, 64, 5000][n % 6];
    transfer::<TcpStream>(noise(60_000), pieces, 1, false).await;
    transfer::<UnixStream>(noise(60_000), pieces, 1, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_around_every_limit_arrive_whole_on_two_threads() {
    sizes::<TcpStream>().await;
    sizes::<UnixStream>().await;
}

async fn sizes<S: Family>() {
    for around in [2 << 10, 16 << 10, 64 << 10, 256 << 10] {
        transfer::<S>(noise(3 << 20), move |n| around - 2 + n % 5, 10_000, n_is_odd(around)).await;
    }
    transfer::<S>(noise(1 << 20), |n| 1 + n * 37 % 3000, 777, true).await;
}

fn n_is_odd(n: usize) -> bool {
    n.trailing_zeros() % 2 == 1
}

#[tokio::test]
async fn a_reader_that_stops_bounds_what_is_queued() {
    stop_reading::<TcpStream>().await;
    stop_reading::<UnixStream>().await;
}

async fn stop_reading<S: Family>() {
    let (mut ours, theirs) = S::pair().await;
    shrink_buffers(&ours, &theirs);
    let mut written = 0;
    loop {
        match tokio::time::timeout(Duration::from_millis(300), ours.write(&[7; 1000])).await {
            Ok(n) => written += n.unwrap(),
            Err(_) => break,
        }
        assert!(written < 10 << 20, "no backpressure");
    }
    assert!(ours.queued() <= 64 << 10, "{}", ours.queued());
    assert!(ours.queued() > 32 << 10, "queued: {}", ours.queued());
    drop(theirs);
}

#[tokio::test]
async fn a_dropped_stream_still_delivers_what_it_took() {
    drop_it::<TcpStream>().await;
    drop_it::<UnixStream>().await;
}

async fn drop_it<S: Family>() {
    let (mut ours, mut theirs) = S::pair().await;
    shrink_buffers(&ours, &theirs);
    let payload = noise(300_000);
    // More than the socket takes, but less than also fills the queue.
    let mut written = 0;
    while ours.queued() < 40_000 {
        written += ours.write(&payload[written..written + 1000]).await.unwrap();
    }
    drop(ours);
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).await.unwrap();
    assert!(got == payload[..written]);
}

#[tokio::test]
async fn half_close_by_the_peer_leaves_the_answer_whole() {
    half_close::<TcpStream>().await;
    half_close::<UnixStream>().await;
}

async fn half_close<S: Family>() {
    let (mut ours, mut theirs) = S::pair().await;
    theirs.write_all(b"question").await.unwrap();
    theirs.shutdown().await.unwrap();
    let mut question = Vec::new();
    ours.read_to_end(&mut question).await.unwrap();
    assert_eq!(question, b"question");
    let payload = noise(500_000);
    let sent = payload.clone();
    let writer = tokio::spawn(async move {
        for piece in sent.chunks(900) {
            ours.write_all(piece).await.unwrap();
        }
        ours.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).await.unwrap();
    writer.await.unwrap();
    assert!(got == payload);
}

#[tokio::test]
async fn a_reset_met_at_the_end_of_a_turn_is_returned_by_the_next_call() {
    let (mut ours, theirs) = TcpStream::pair().await;
    SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
    drop(theirs);
    let mut failed = None;
    for _ in 0..100 {
        match ours.write_all(b"anyone there?").await {
            Ok(()) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(e) => {
                failed = Some(e);
                break;
            }
        }
    }
    let error = failed.expect("the reset is reported");
    assert!(matches!(error.kind(), std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe), "{error}");
    // From here on calls return the same as tokio's stream, and `flushed` reports the lost bytes.
    assert!(ours.flush().await.is_ok());
    assert!(ours.flushed().await.is_err());
    for _ in 0..2 {
        assert_eq!(ours.write(b"anyone there?").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
    assert_eq!(ours.queued(), 0);
}

#[tokio::test]
async fn a_peer_that_resets_wakes_a_writer_that_waits() {
    let (mut ours, theirs) = TcpStream::pair().await;
    shrink_buffers(&ours, &theirs);
    let writer = tokio::spawn(async move { ours.write_all(&vec![1; 10 << 20]).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
    drop(theirs);
    let result = tokio::time::timeout(testkit::HANGS, writer).await.expect("woken").unwrap();
    assert!(result.is_err());
}

#[test]
fn a_runtime_dropped_with_full_queues_leaves_nothing_behind() {
    if alone::ran_in_child() {
        return;
    }
    drop_the_runtime::<TcpStream>();
    drop_the_runtime::<UnixStream>();
}

fn drop_the_runtime<S: Family>() {
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for flavor in [1, 2] {
        let runtime = || {
            match flavor {
                1 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            }
            .enable_all()
            .build()
            .unwrap()
        };
        drop(runtime());
        let child = std::process::Command::new("true").status().unwrap();
        assert!(child.success());
        let before = fds();
        let rt = runtime();
        let (theirs, dropped) = rt.block_on(async {
            let mut theirs = Vec::new();
            for _ in 0..20 {
                let (mut ours, peer) = S::pair().await;
                shrink_buffers(&ours, &peer);
                theirs.push(S::detach(peer));
                tokio::spawn(async move {
                    ours.write_all(&vec![5; 1 << 20]).await.ok();
                });
            }
            let (mut dropped, peer) = S::pair().await;
            shrink_buffers(&dropped, &peer);
            while dropped.queued() < 40_000 {
                dropped.write_all(&[5; 1000]).await.unwrap();
            }
            theirs.push(S::detach(peer));
            tokio::time::sleep(Duration::from_millis(20)).await;
            (theirs, dropped)
        });
        drop(rt);
        // A stream that outlives its runtime can still be dropped.
        drop(dropped);
        drop(theirs);
        // Other tests of this process open and close descriptors too, so only a lasting surplus is a leak.
        let settled = (0..100).any(|_| {
            std::thread::yield_now();
            fds() <= before || {
                std::thread::park_timeout(Duration::from_millis(50));
                false
            }
        });
        assert!(settled, "{} descriptors; before: {before}", fds());
    }
}

#[tokio::test]
async fn accepted_sockets_have_nodelay() {
    let (ours, _theirs) = TcpStream::pair().await;
    assert!(SockRef::from(&ours).tcp_nodelay().unwrap());
}

#[tokio::test]
async fn a_local_set_works_too() {
    tokio::task::LocalSet::new()
        .run_until(async {
            let (mut ours, mut theirs) = TcpStream::pair_with(Duration::from_micros(200)).await;
            tokio::task::spawn_local(async move {
                for _ in 0..1000 {
                    ours.write_all(b"0123456789").await.unwrap();
                    yield_now().await;
                }
                ours.shutdown().await.unwrap();
            });
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            assert_eq!(got.len(), 10_000);
        })
        .await;
}

#[tokio::test]
async fn our_stream_connects_too() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(addr).await.unwrap();
    let (mut server, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(client.peer_addr().unwrap(), addr);
    client.write_all(b"ping").await.unwrap();
    let mut got = [0; 4];
    server.read_exact(&mut got).await.unwrap();
    server.write_all(&got).await.unwrap();
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ping");
    let fine = client.flushed().await;
    assert!(fine.is_ok());
}

/// On the main task of a multi-thread runtime, a task that yields for lack of budget is polled again at once.
#[test]
fn a_task_without_budget_left_waits_for_a_full_socket() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Poll;

    testkit::http::watched(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut ours, mut theirs) = testkit::pair().await;
            shrink_buffers(&ours, &theirs);
            let bytes = noise(1 << 20);
            let mut sent = 0;
            while let Ok(n) = rustix::net::send(&ours, &bytes[sent..], rustix::net::SendFlags::DONTWAIT) {
                sent += n;
            }
            ours.write_all(&bytes[sent..sent + 1000]).await.unwrap();
            sent += 1000;
            assert_eq!(ours.queued(), 1000);
            let reader = tokio::spawn(async move {
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).await.unwrap();
                got
            });
            {
                let mut shutdown = pin!(ours.shutdown());
                std::future::poll_fn(|cx| {
                    while let Poll::Ready(spent) = tokio::task::coop::poll_proceed(cx) {
                        spent.made_progress();
                    }
                    shutdown.as_mut().poll(cx)
                })
                .await
                .unwrap();
            }
            assert!(reader.await.unwrap() == bytes[..sent]);
        });
    });
}

/// A task that reads without budget, by `try_read`, spends some for each answer: otherwise a peer that asks again and again
/// would keep the thread from all other tasks.
#[tokio::test]
async fn answers_take_of_the_budget_of_their_task() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // In this thread, so that the next request is there before the task waits.
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let answered = tokio::spawn(async move {
        let other = Arc::new(AtomicBool::new(false));
        for at in 0..1000 {
            client.write_all(b"?").unwrap();
            stream.readable().await.unwrap();
            while stream.try_read(&mut [0; 8]).is_err() {
                yield_now().await;
                stream.readable().await.unwrap();
            }
            if at == 0 {
                // Behind the first wait for the socket.
                let ran = Arc::clone(&other);
                tokio::spawn(async move { ran.store(true, Ordering::Relaxed) });
            }
            stream.write_all(b"!").await.unwrap();
            stream.flushed().await.unwrap();
            client.read_exact(&mut [0]).unwrap();
            if other.load(Ordering::Relaxed) {
                return at;
            }
        }
        1000
    });
    assert!(answered.await.unwrap() < 1000, "no other task runs");
}
