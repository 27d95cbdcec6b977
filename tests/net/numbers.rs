//! Statistics of a stream: exact counts, lower bounds for times, and the last values at close.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millstream::net::{Handle, StreamStats, TcpListener, TcpStream, UnixStream};
use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::http::{Flavour, on_both, watched};
use testkit::{noise, pair, pair_with};

const LONG: Duration = Duration::from_secs(60);

fn numbers(handle: &Handle) -> StreamStats {
    handle.stats().expect("the stream is open")
}

async fn listen(hook: fn(&StreamStats)) -> TcpListener {
    TcpListener::builder().gather_limit(LONG).on_close(hook).bind("127.0.0.1:0").await.unwrap()
}

async fn connect(listener: &TcpListener) -> (TcpStream, tokio::net::TcpStream) {
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

#[test]
fn a_write_a_turn_takes_one_call_and_seldom_a_flush() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let (mut ours, mut theirs) = pair().await;
            let (handle, mut got) = (ours.handle(), [0; 5]);
            for _ in 0..300 {
                ours.write_all(b"token").await.unwrap();
                theirs.read_exact(&mut got).await.unwrap();
                // Writes that follow sooner gather.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let so_far = numbers(&handle);
            assert_eq!((so_far.writes, so_far.frames), (300, 300));
            // Two at first, and then one behind 3, 7, 15, 31 and each 63 that leave at once.
            assert_eq!((so_far.flushes.turn, so_far.flushes.through), (9, 291));
        });
    });
}

#[test]
fn every_send_has_a_reason() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let (mut ours, mut theirs) = pair().await;
            let handle = ours.handle();
            let mut got = [0; 500];
            let mut nothing = StreamStats::default();
            nothing.id = handle.id();
            assert_eq!(numbers(&handle), nothing);

            for _ in 0..100 {
                ours.write_all(b"frame").await.unwrap();
            }
            assert_eq!((numbers(&handle).queued, numbers(&handle).frames), (500, 100));
            theirs.read_exact(&mut got).await.unwrap();
            let so_far = numbers(&handle);
            assert_eq!((so_far.sent, so_far.writes, so_far.flushes.turn, so_far.frames), (500, 1, 1, 100));

            theirs.write_all(b"ask").await.unwrap();
            ours.read_exact(&mut got[..3]).await.unwrap();
            ours.write_all(b"answer").await.unwrap();
            assert_eq!((numbers(&handle).flushes.through, numbers(&handle).received), (1, 3));

            ours.write_all(b"wait for it").await.unwrap();
            ours.flushed().await.unwrap();
            ours.flushed().await.unwrap();
            assert_eq!(numbers(&handle).flushes.flushed, 1, "the second call finds an empty queue");

            ours.write_all(b"the end").await.unwrap();
            ours.shutdown().await.unwrap();
            let last = numbers(&handle);
            assert_eq!((last.flushes.shutdown, last.writes, last.sent), (1, 4, 500 + 6 + 11 + 7));
            assert_eq!((last.partial_writes, last.would_block, last.flushes.room), (0, 0, 0));
            assert_eq!(last.by_sendfile, 0);

            let (mut ours, _theirs) = pair().await;
            let handle = ours.handle();
            let closing = handle.closing().unwrap();
            // Before its first readiness event, a socket counts as full.
            ours.write_all(b"first").await.unwrap();
            ours.flushed().await.unwrap();
            ours.write_all(b"dropped").await.unwrap();
            drop(ours);
            while closing.stats().is_none() {
                yield_now().await;
            }
            let last = closing.stats().unwrap();
            assert_eq!((last.flushes.dropped, last.sent, last.lost), (1, 12, 0));
        });
    });
}

#[test]
fn a_socket_that_is_full_is_seen() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    on_both(|| async {
        let (mut ours, mut theirs) = pair_with(Duration::from_micros(200)).await;
        SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
        let handle = ours.handle();
        let payload = noise(8 << 20);
        let sent = payload.clone();
        let writer = tokio::spawn(async move {
            for piece in sent.chunks(900) {
                ours.write_all(piece).await.unwrap();
            }
            ours.flushed().await.unwrap();
            ours
        });
        // Waits until the kernel's buffer is full and more bytes are queued.
        while numbers(&handle).queued < 30_000 || handle.kernel().unwrap().unconfirmed == 0 {
            yield_now().await;
        }
        let mut got = vec![0; payload.len()];
        theirs.read_exact(&mut got).await.unwrap();
        assert!(got == payload);
        let ours = writer.await.unwrap();
        let told = numbers(&handle);
        assert_eq!((told.sent, told.queued), (8 << 20, 0));
        assert!(told.would_block > 0 && told.flushes.room > 0, "{told:?}");
        assert!(told.frames >= 9000, "{told:?}");
        let tcp = handle.kernel().unwrap().tcp.unwrap();
        assert!(tcp.mss > 0 && tcp.cwnd > 0 && tcp.rtt > Duration::ZERO, "{tcp:?}");
        drop(ours);
    });
}

#[test]
fn partial_writes_are_counted() {
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let (mut ours, mut theirs) = pair().await;
            SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
            let handle = ours.handle();
            // The write follows queued bytes and exceeds the socket's buffer.
            ours.write_all(b"head").await.unwrap();
            let n = ours.write(&noise(8 << 20)).await.unwrap();
            let told = numbers(&handle);
            assert_eq!(told.sent as usize, 4 + n, "{told:?}");
            assert_eq!(told.partial_writes, u32::from(n < 8 << 20), "{told:?}");
            theirs.read_exact(&mut vec![0; 4 + n]).await.unwrap();
        });
    });
}

#[test]
fn times_are_no_shorter_than_what_was_waited() {
    // The clock has ticks of up to 10 ms.
    const TICK: Duration = Duration::from_millis(12);
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let (mut ours, mut theirs) = pair().await;
            let handle = ours.handle();
            let nap = |ms| tokio::time::sleep(Duration::from_millis(ms));
            assert_eq!(numbers(&handle).first_byte, None);
            nap(100).await;
            theirs.write_all(b"ask").await.unwrap();
            ours.read_exact(&mut [0; 3]).await.unwrap();
            nap(60).await;
            ours.write_all(b"answer").await.unwrap();
            ours.flushed().await.unwrap();
            let told = numbers(&handle);
            assert!(told.first_byte.unwrap() + TICK >= Duration::from_millis(160), "{told:?}");
            assert!(told.longest_answer + TICK >= Duration::from_millis(60), "{told:?}");
            assert_eq!(told.longest_gap, Duration::ZERO);
            let first_byte = told.first_byte;
            nap(80).await;
            ours.write_all(b"more").await.unwrap();
            ours.flushed().await.unwrap();
            let told = numbers(&handle);
            assert!(told.longest_gap + TICK >= Duration::from_millis(80), "{told:?}");
            assert_eq!(told.first_byte, first_byte);
        });
    });
}

static CLOSED: Mutex<Vec<StreamStats>> = Mutex::new(Vec::new());

#[test]
fn the_last_numbers_are_kept_and_told() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    on_both(|| async {
        CLOSED.lock().unwrap().clear();
        let listener = listen(|numbers| CLOSED.lock().unwrap().push(*numbers)).await;
        let (mut ours, mut theirs) = connect(&listener).await;
        let handle = ours.handle();
        let closing = handle.closing().unwrap();
        ours.write_all(b"hello").await.unwrap();
        theirs.read_exact(&mut [0; 5]).await.unwrap();
        assert_eq!(closing.stats(), None);
        drop(ours);
        while closing.stats().is_none() {
            yield_now().await;
        }
        let last = closing.stats().unwrap();
        assert_eq!((last.sent, last.frames, handle.stats()), (5, 1, None));
        assert!(last.kernel.unwrap().tcp.is_some(), "{last:?}");
        assert_eq!((handle.kernel(), handle.send_strategy()), (None, None));
        // The hook runs for this stream too, although the test took no `closing` handle.
        let (ours, theirs) = connect(&listener).await;
        drop((ours, theirs));
        while CLOSED.lock().unwrap().len() < 2 {
            yield_now().await;
        }
        assert_eq!(CLOSED.lock().unwrap()[0], last);
        assert_eq!(CLOSED.lock().unwrap()[1].sent, 0);
    });
}

#[test]
fn what_a_dead_peer_never_got_is_lost() {
    on_both(|| async {
        let (mut ours, theirs) = pair().await;
        let handle = ours.handle();
        let closing = handle.closing().unwrap();
        SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
        drop(theirs);
        loop {
            let mut fd = [PollFd::new(&ours, PollFlags::RDHUP)];
            rustix::event::poll(&mut fd, Some(&Default::default())).unwrap();
            if !fd[0].revents().is_empty() {
                break;
            }
            yield_now().await;
        }
        ours.write_all(b"too late").await.unwrap();
        assert!(ours.flushed().await.is_err());
        drop(ours);
        while closing.stats().is_none() {
            yield_now().await;
        }
        let last = closing.stats().unwrap();
        assert_eq!((last.lost, last.sent), (8, 0), "{last:?}");
    });
}

#[tokio::test]
async fn a_unix_stream_has_all_but_what_tcp_knows() {
    if testkit::portable("the kernel is not asked about a connection") {
        return;
    }
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let handle = ours.handle();
    ours.write_all(b"hello").await.unwrap();
    ours.flushed().await.unwrap();
    let kernel = handle.kernel().unwrap();
    assert!(kernel.tcp.is_none() && kernel.unconfirmed >= 5, "{kernel:?}");
    theirs.read_exact(&mut [0; 5]).await.unwrap();
    assert_eq!(handle.kernel().unwrap().unconfirmed, 0);
    assert_eq!((numbers(&handle).sent, numbers(&handle).frames), (5, 1));
}

#[test]
fn a_hook_that_panics_harms_no_other_stream() {
    static PANICS: AtomicU32 = AtomicU32::new(0);
    on_both(|| async {
        let before = PANICS.load(Ordering::Relaxed);
        let listener = listen(|_| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            panic!("panic of the test's hook")
        })
        .await;
        for round in 1..=5 {
            let (mut one, mut their_one) = connect(&listener).await;
            let (mut other, mut their_other) = connect(&listener).await;
            one.write_all(b"scheduled").await.unwrap();
            // The stream is scheduled, so the end of the turn closes it.
            drop(one);
            other.write_all(b"hello").await.unwrap();
            their_other.read_exact(&mut [0; 5]).await.unwrap();
            their_one.read_exact(&mut [0; 9]).await.unwrap();
            drop(other);
            while PANICS.load(Ordering::Relaxed) < before + 2 * round {
                yield_now().await;
            }
        }
    });
}
