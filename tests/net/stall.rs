//! A peer that does not read: with a send timeout the connection ends, without one the stream waits.

use std::io::{ErrorKind, Read};
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millstream::net::TcpListener;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use testkit::http::on_both;
use testkit::{alone, limits, noise};

const LIMIT: Duration = Duration::from_secs(1);

async fn connection(limit: Option<Duration>) -> (millstream::net::TcpStream, tokio::net::TcpStream) {
    let builder = TcpListener::builder();
    let builder = if let Some(limit) = limit { builder.send_timeout(limit) } else { builder };
    let listener = builder.bind("127.0.0.1:0").await.unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let (ours, _) = listener.accept().await.unwrap();
    SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    (ours, client)
}

#[test]
fn a_peer_that_takes_nothing_is_given_up() {
    if testkit::portable("the kernel gives up no peer") {
        return;
    }
    on_both(|| async {
        let (mut ours, client) = connection(Some(LIMIT)).await;
        let since = Instant::now();
        let error = loop {
            if let Err(e) = ours.write_all(&[7; 10_000]).await {
                break e;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // The kernel's timeout starts at the first bytes that find no room.
        assert!(since.elapsed() >= LIMIT / 2, "{:?}", since.elapsed());
        assert_eq!(ours.queued(), 0, "the queue is dropped");
        drop(client);
    });
}

#[test]
fn a_task_that_only_reads_learns_of_it_too() {
    if testkit::portable("the kernel gives up no peer") {
        return;
    }
    on_both(|| async {
        let (ours, client) = connection(Some(LIMIT)).await;
        let (mut reading, mut writing) = tokio::io::split(ours);
        let writer = tokio::spawn(async move { while writing.write_all(&[7; 10_000]).await.is_ok() {} });
        // The end of the stream or an error, depending on the kernel's order.
        let read = reading.read(&mut [0; 8]).await;
        assert!(matches!(&read, Ok(0)) || read.as_ref().is_err_and(|e| e.kind() == ErrorKind::TimedOut), "{read:?}");
        writer.await.unwrap();
        drop(client);
    });
}

#[test]
fn an_idle_connection_is_not_given_up() {
    on_both(|| async {
        let (mut ours, mut client) = connection(Some(Duration::from_millis(200))).await;
        ours.write_all(b"hello").await.unwrap();
        let mut got = [0; 5];
        client.read_exact(&mut got).await.unwrap();
        // Nothing is queued for three times the timeout.
        tokio::time::sleep(Duration::from_millis(600)).await;
        ours.write_all(b"again").await.unwrap();
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"again");
    });
}

/// Bytes of a dropped stream are sent on a runtime that has `enable_io` but not `enable_time`.
#[test]
fn a_dropped_stream_needs_no_timer() {
    if alone::ran_in_child() {
        return;
    }
    // Their holder may give the socket a buffer for all the bytes.
    limits::drop_capabilities();
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        print(info);
    }));
    let payload = noise(40 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let reader = runtime.block_on(async {
        let listener = TcpListener::builder().high_mark(64 << 20).bind("127.0.0.1:0").await.unwrap();
        let mut theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut ours, _) = listener.accept().await.unwrap();
        for piece in payload.chunks(10_000) {
            ours.write_all(piece).await.unwrap();
        }
        drop(ours);
        // The task that goes on sending has begun.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let (sender, got) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = sender.send(theirs.read_to_end(&mut bytes).map(|_| bytes));
        });
        got.await.unwrap()
    });
    assert!(reader.unwrap() == payload);
    assert_eq!(PANICS.load(Ordering::SeqCst), 0);
}
