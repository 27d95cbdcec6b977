//! Rates: an upper bound shared by all streams of a pace; every byte arrives.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use millstream::net::{SharedPace, TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use testkit::http::on_both;
use testkit::noise;

fn rate(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).unwrap()
}

async fn drain(mut theirs: impl AsyncRead + Unpin + Send + 'static) -> (Vec<u8>, Duration) {
    let (start, mut got) = (Instant::now(), Vec::new());
    theirs.read_to_end(&mut got).await.unwrap();
    (got, start.elapsed())
}

async fn connect(listener: &TcpListener) -> (TcpStream, tokio::net::TcpStream) {
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

#[test]
fn streams_share_a_rate_and_every_byte_arrives() {
    on_both(|| async {
        // 2 MB are one second's worth; the bucket starts with 200 KB.
        let pace = SharedPace::new(rate(2_000_000));
        let listener = TcpListener::builder().pace_all(&pace).bind("127.0.0.1:0").await.unwrap();
        let start = Instant::now();
        let mut tasks = Vec::new();
        for n in 0..10 {
            let (mut ours, theirs) = connect(&listener).await;
            let payload = noise(200_000);
            let sent = payload.clone();
            tasks.push(tokio::spawn(async move {
                let reader = tokio::spawn(drain(theirs));
                let piece = [300, 1000, 20_000, 64_000][n % 4];
                for piece in sent.chunks(piece) {
                    ours.write_all(piece).await.unwrap();
                }
                match n % 2 {
                    0 => ours.shutdown().await.unwrap(),
                    _ => drop(ours),
                }
                assert!(reader.await.unwrap().0 == payload);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        // The initial content of the bucket and one oversized call per stream pass without waiting.
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(400), "{took:?}");
        assert!(format!("{pace:?}").contains("waiting: 0"), "{pace:?}");
    });
}

#[test]
fn a_rate_is_changed_while_streams_wait_for_it() {
    on_both(|| async {
        let pace = SharedPace::new(rate(10_000));
        assert_eq!(pace.rate(), rate(10_000));
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::builder().pace_all(&pace).bind(dir.path().join("socket")).await.unwrap();
        let theirs = tokio::net::UnixStream::connect(dir.path().join("socket")).await.unwrap();
        let (mut ours, _) = listener.accept().await.unwrap();
        let payload = noise(3_000_000);
        let sent = payload.clone();
        let reader = tokio::spawn(drain(theirs));
        let writer = tokio::spawn(async move {
            for piece in sent.chunks(900) {
                ours.write_all(piece).await.unwrap();
            }
            ours.shutdown().await.unwrap();
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The old rate would take 300 s.
        pace.set(rate(1 << 30));
        writer.await.unwrap();
        assert!(reader.await.unwrap().0 == payload);
    });
}

#[test]
fn a_runtime_that_ends_leaves_its_waiting_to_another() {
    let pace = SharedPace::new(rate(100_000));
    let shared = pace.clone();
    on_both(move || {
        let pace = shared.clone();
        async move {
            let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let theirs = pace.clone();
            // Empties the bucket and waits for more.
            let attended = other.spawn(async move {
                let listener = TcpListener::builder().pace_all(&theirs).bind("127.0.0.1:0").await.unwrap();
                let (mut ours, client) = connect(&listener).await;
                tokio::spawn(drain(client));
                let writer = tokio::spawn(async move { while ours.write_all(&[1; 10_000]).await.is_ok() {} });
                while !format!("{theirs:?}").contains("waiting: 1") {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                drop(writer);
            });
            attended.await.unwrap();
            let listener = TcpListener::builder().pace_all(&pace).bind("127.0.0.1:0").await.unwrap();
            let (mut ours, client) = connect(&listener).await;
            let reader = tokio::spawn(drain(client));
            let writer = tokio::spawn(async move {
                ours.write_all(b"hello").await.unwrap();
                ours.shutdown().await.unwrap();
            });
            while !format!("{pace:?}").contains("waiting: 2") && !writer.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            other.shutdown_background();
            pace.set(rate(1 << 30));
            writer.await.unwrap();
            assert_eq!(reader.await.unwrap().0, b"hello");
            pace.set(rate(100_000));
        }
    });
}

/// No task waits for the rate any more, so a write that would wait fails, as it does without a rate.
#[test]
fn a_stream_of_an_ended_runtime_fails_where_it_would_wait() {
    for waits_before in [false, true] {
        let pace = SharedPace::new(rate(1000));
        let own = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (mut ours, theirs) = own.block_on(async {
            let listener = TcpListener::builder().pace_all(&pace).bind("127.0.0.1:0").await.unwrap();
            let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().await.unwrap().0, theirs)
        });
        let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        other.block_on(async {
            let mut own = Some(own);
            if !waits_before {
                own.take().unwrap().shutdown_background();
            }
            let writer = tokio::spawn(async move {
                loop {
                    if let Err(e) = ours.write_all(&[1; 10_000]).await {
                        return e;
                    }
                }
            });
            if let Some(own) = own {
                while !format!("{pace:?}").contains("waiting: 1") {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                own.shutdown_background();
            }
            let error = tokio::time::timeout(Duration::from_secs(30), writer).await.expect("the write hangs").unwrap();
            assert!(error.to_string().contains("has shut down"), "waits before: {waits_before}: {error}");
        });
        drop(theirs);
    }
}

#[test]
fn the_kernel_paces_one_connection() {
    if testkit::portable("the kernel paces no connection") {
        return;
    }
    on_both(|| async {
        let listener = TcpListener::builder().pace(rate(1 << 20)).bind("127.0.0.1:0").await.unwrap();
        let (mut ours, theirs) = connect(&listener).await;
        let handle = ours.handle();
        let reader = tokio::spawn(drain(theirs));
        let payload = noise(1 << 20);
        ours.write_all(&payload).await.unwrap();
        // The first segments are not paced, and Linux allows bursts.
        handle.set_pace(Some(rate(1 << 19))).unwrap();
        ours.write_all(&payload[..1 << 18]).await.unwrap();
        ours.shutdown().await.unwrap();
        let (got, took) = reader.await.unwrap();
        assert!(got[..1 << 20] == payload && got.len() == (1 << 20) + (1 << 18));
        assert!(took >= Duration::from_millis(250), "{took:?}");
        handle.set_pace(None).unwrap();
        drop(ours);
        assert_eq!(handle.set_pace(None).unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    });
}

#[tokio::test]
async fn a_unix_stream_cannot_be_paced_by_the_kernel_and_says_so() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let error = ours.handle().set_pace(Some(rate(1))).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}

/// The runtime has `enable_io` but not `enable_time`.
#[test]
fn a_shared_rate_is_refused_where_there_is_no_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            let listener = TcpListener::builder().pace_all(&SharedPace::new(rate(1000)));
            listener.bind("127.0.0.1:0").await
        })
    }));
    let message = refused.expect_err("no timer for the rate");
    let message = message.downcast_ref::<String>().map(String::as_str).or(message.downcast_ref::<&str>().copied());
    assert!(message.is_some_and(|message| message.contains("enable_time")), "{message:?}");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut ours, mut theirs) = connect(&listener).await;
        ours.write_all(b"hello").await.unwrap();
        ours.shutdown().await.unwrap();
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"hello");
    });
}
