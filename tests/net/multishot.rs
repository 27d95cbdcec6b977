//! Multishot receives: exhausted buffers, tasks that do not read, short-lived connections and a failing ring. Every
//! byte arrives once, in order, on its own connection, and every buffer is returned.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use millstream::metrics::Snapshot;
use millstream::net::{Receive, TcpListener, TcpStream};
use millstream::runtime::{DriverBuilder, Io, driver_info};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use testkit::http::{Flavour, watched};
use testkit::{alone, noise, seccomp};

const ENTER: libc::c_long = 426;

/// Runs `test` on both kinds of runtime, with `count` receive buffers of `bytes` bytes.
fn with_buffers<R: Future<Output = ()>>(count: u16, bytes: u32, test: impl Fn() -> R + Send + 'static) {
    if testkit::lacks("io_uring") {
        return;
    }
    watched(move || {
        for flavour in Flavour::BOTH {
            println!("on {flavour:?}");
            let before = Snapshot::now();
            flavour.runtime().block_on(async {
                DriverBuilder::new()
                    .io(Io::Auto)
                    .entries(32)
                    .receive_buffer_count(count)
                    .receive_buffer_bytes(bytes)
                    .install()
                    .unwrap();
                test().await;
                assert!(driver_info().rings() > 0, "{}", driver_info());
            });
            let counts = Snapshot::now().since(&before);
            assert!(counts.receive_buffers > 0, "no multishot receive\n{counts}");
            assert_eq!(counts.receive_buffers, counts.receive_buffers_returned, "{counts}");
            assert_eq!((counts.ring_strays, counts.ring_leaks), (0, 0), "{counts}");
        }
    });
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::builder().receive(Receive::Multishot).bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

async fn connect(listener: &TcpListener, addr: SocketAddr) -> (TcpStream, tokio::net::TcpStream) {
    let client = tokio::net::TcpStream::connect(addr).await.unwrap();
    client.set_nodelay(true).unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Reads to the end, at most `bite` bytes at a time, with yields. Returns the length and the hash.
async fn read_all(mut stream: TcpStream, bite: usize) -> (usize, Vec<u8>) {
    let (mut sum, mut len, mut buf) = (Sha256::new(), 0, vec![0; bite]);
    loop {
        let n = stream.read(&mut buf).await.unwrap();
        if n == 0 {
            return (len, sum.finalize().to_vec());
        }
        sum.update(&buf[..n]);
        len += n;
        if len % 3 == 0 {
            yield_now().await;
        }
    }
}

/// Sends the tag and then random bytes, `len` in all, in pieces of various sizes. Returns the hash.
async fn send(mut client: tokio::net::TcpStream, tag: usize, len: usize) -> Vec<u8> {
    let mut bytes = noise(len);
    bytes[..8].copy_from_slice(&(tag as u64).to_be_bytes());
    let (mut at, mut n) = (0, tag);
    while at < len {
        let piece = [1, 700, 40, 9000, 64][n % 5].min(len - at);
        client.write_all(&bytes[at..at + piece]).await.unwrap();
        at += piece;
        n += 1;
        if n % 4 == 0 {
            yield_now().await;
        }
    }
    client.shutdown().await.unwrap();
    Sha256::digest(&bytes).to_vec()
}

/// Transfers `len` bytes on each of `connections` connections at once and compares the hashes.
async fn all_arrives(connections: usize, len: usize, bite: usize) {
    let (listener, addr) = listen().await;
    let mut tasks = Vec::new();
    for tag in 0..connections {
        let (stream, client) = connect(&listener, addr).await;
        let sent = tokio::spawn(send(client, tag, len));
        let read = tokio::spawn(read_all(stream, bite));
        tasks.push(async move { (sent.await.unwrap(), read.await.unwrap()) });
    }
    for (sent, (read_len, read)) in join_all(tasks).await {
        assert_eq!(read_len, len);
        assert!(sent == read, "the bytes differ");
    }
}

#[test]
fn four_buffers_serve_sixty_four_readers() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(4, 512, || all_arrives(64, 40_000, 300));
}

#[test]
fn one_buffer_of_64_bytes_serves_too() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(1, 64, || all_arrives(8, 5000, 4096));
}

#[test]
fn plenty_of_buffers_take_bulk() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(512, 4096, || all_arrives(8, 3 << 20, 16 << 10));
}

#[test]
fn what_has_no_room_in_the_completion_queue_is_not_lost() {
    if alone::ran_in_child() {
        return;
    }
    // The completion queue has room for 128 completions.
    with_buffers(4096, 64, || async {
        let (listener, addr) = listen().await;
        let mut pairs = Vec::new();
        for _ in 0..500 {
            let (mut stream, mut client) = connect(&listener, addr).await;
            // The multishot receive is armed from here on.
            client.write_all(b"!").await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'!');
            pairs.push((stream, client.into_std().unwrap()));
        }
        let before = Snapshot::now();
        let clients: Vec<_> = pairs.iter().map(|(_, client)| client.try_clone().unwrap()).collect();
        let sender = std::thread::spawn(move || {
            for n in 0..20u8 {
                for client in &clients {
                    std::io::Write::write_all(&mut &*client, &[n]).unwrap();
                }
            }
        });
        // This thread reaps no completions until the join.
        sender.join().unwrap();
        for (stream, _) in &mut pairs {
            let mut got = [0; 20];
            stream.read_exact(&mut got).await.unwrap();
            assert_eq!(got, std::array::from_fn(|n| n as u8));
        }
        let counts = Snapshot::now().since(&before);
        assert!(counts.receive_buffers >= 500, "{counts}");
    });
}

#[test]
fn an_owner_that_does_not_read_is_stopped_and_the_others_go_on() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(64, 4096, || async {
        const LEN: usize = 8 << 20;
        // Far less than the test sends, independent of the defaults of this machine.
        const SOCKET_BUFFER: usize = 256 << 10;
        let (listener, addr) = listen().await;
        SockRef::from(&listener).set_recv_buffer_size(SOCKET_BUFFER).unwrap();
        let (mut idle, client) = connect(&listener, addr).await;
        SockRef::from(&client).set_send_buffer_size(SOCKET_BUFFER).unwrap();
        let sent = tokio::spawn(send(client, 7, LEN));
        let tag = idle.read_u64().await.unwrap();
        assert_eq!(tag, 7);
        for tag in 0..20 {
            let (stream, client) = connect(&listener, addr).await;
            let (sent, read) = tokio::join!(tokio::spawn(send(client, tag, 100_000)), read_all(stream, 8192));
            assert!(sent.unwrap() == read.1);
        }
        let counts = Snapshot::now();
        // The kernel receives until the cancellation, possibly into all buffers. The others received without buffers.
        assert!(counts.receive_buffers > counts.receive_buffers_returned, "{counts}");
        assert!(!sent.is_finished(), "the peer must wait");
        let mut sum = Sha256::new();
        sum.update(7u64.to_be_bytes());
        let mut buf = vec![0; 64 << 10];
        loop {
            let n = idle.read(&mut buf).await.unwrap();
            if n == 0 {
                break;
            }
            sum.update(&buf[..n]);
        }
        assert!(sum.finalize().to_vec() == sent.await.unwrap());
    });
}

#[test]
fn a_stream_that_is_dropped_is_closed_though_its_peer_says_nothing() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(16, 1024, || async {
        let (listener, addr) = listen().await;
        let (mut stream, mut client) = connect(&listener, addr).await;
        client.write_all(b"!").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'!');
        drop(stream);
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0, "end of stream");
    });
}

#[test]
fn idle_connections_hold_no_buffer() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(16, 1024, || async {
        let (listener, addr) = listen().await;
        let mut pairs = Vec::new();
        for _ in 0..200 {
            let (mut stream, mut client) = connect(&listener, addr).await;
            client.write_all(b"hello").await.unwrap();
            let mut got = [0; 5];
            stream.read_exact(&mut got).await.unwrap();
            pairs.push((stream, client));
        }
        let counts = Snapshot::now();
        assert_eq!(counts.receive_buffers, counts.receive_buffers_returned);
        // One buffer for each message, so the 16 buffers were reused.
        assert!(counts.receive_buffers >= 200, "{counts}");
        for (stream, client) in &mut pairs {
            stream.write_all(b"bye").await.unwrap();
            let mut got = [0; 3];
            client.read_exact(&mut got).await.unwrap();
        }
    });
}

#[test]
fn no_byte_is_ever_on_the_wrong_connection() {
    if alone::ran_in_child() {
        return;
    }
    // Descriptors and slots are reused at once because connections are dropped at any point.
    with_buffers(32, 256, || async {
        let (listener, addr) = listen().await;
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
        for round in 0..60u64 {
            let mut tasks = Vec::new();
            for n in 0..16u64 {
                let (mut stream, mut client) = connect(&listener, addr).await;
                let tag = (round * 16 + n + 1).to_be_bytes();
                tasks.push(tokio::spawn(async move {
                    let _ = client.write_all(&tag.repeat(50)).await;
                    if n % 4 == 0 {
                        drop(client);
                        drop(stream);
                        return;
                    }
                    let mut got = vec![0; tag.len() * (1 + n as usize)];
                    stream.read_exact(&mut got).await.unwrap();
                    assert!(got.chunks(8).all(|chunk| chunk == tag), "a byte of another connection");
                    stream.write_all(&got).await.unwrap();
                    let mut back = vec![0; got.len()];
                    client.read_exact(&mut back).await.unwrap();
                    assert!(back == got, "the echo differs");
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        }
        // The runtime closes dropped streams within a turn or two.
        let since = std::time::Instant::now();
        while std::fs::read_dir("/proc/self/fd").unwrap().count() > open + 8 {
            assert!(since.elapsed() < testkit::HANGS, "descriptors are still open");
            yield_now().await;
        }
    });
}

#[test]
fn half_closed_and_reset_connections_say_so() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(16, 1024, || async {
        let (listener, addr) = listen().await;
        let (mut stream, mut client) = connect(&listener, addr).await;
        client.write_all(b"the last words").await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"the last words");
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "the end repeats");
        stream.write_all(b"the answer").await.unwrap();
        stream.shutdown().await.unwrap();
        got.clear();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"the answer");

        let (mut stream, client) = connect(&listener, addr).await;
        socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
        let reading = tokio::spawn(async move { stream.read(&mut [0; 8]).await });
        yield_now().await;
        drop(client);
        let error = reading.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    });
}

#[test]
fn a_runtime_ends_with_a_thousand_receives_in_flight() {
    if alone::ran_in_child() {
        return;
    }
    with_buffers(64, 1024, || async {
        let (listener, addr) = listen().await;
        let mut pairs = Vec::new();
        for _ in 0..400 {
            let (mut stream, mut client) = connect(&listener, addr).await;
            client.write_all(b"!").await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'!');
            tokio::spawn(async move {
                let _ = stream.read_u8().await;
                drop(client);
            });
            pairs.push(());
        }
    });
}

/// A seccomp filter denies io_uring while connections are open, as when a service drops its privileges late.
#[test]
fn connections_outlive_a_ring_that_is_taken_away() {
    if alone::ran_in_child() {
        return;
    }
    if testkit::lacks("io_uring") {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            DriverBuilder::new().io(Io::Auto).install().unwrap();
            let (listener, addr) = listen().await;
            let mut pairs = Vec::new();
            for _ in 0..10 {
                let (mut stream, mut client) = connect(&listener, addr).await;
                client.write_all(b"!").await.unwrap();
                assert_eq!(stream.read_u8().await.unwrap(), b'!');
                pairs.push((stream, client));
            }
            seccomp::deny(ENTER, Errno::PERM);
            let tasks = pairs.into_iter().enumerate().map(|(tag, (stream, client))| async move {
                let (sent, read) = tokio::join!(tokio::spawn(send(client, tag, 300_000)), read_all(stream, 5000));
                assert!(sent.unwrap() == read.1);
            });
            join_all(tasks).await;
            let (stream, client) = connect(&listener, addr).await;
            let (sent, read) = tokio::join!(tokio::spawn(send(client, 1, 300_000)), read_all(stream, 5000));
            assert!(sent.unwrap() == read.1);
        });
    });
}

#[test]
fn answers_of_many_connections_leave_by_few_calls() {
    if alone::ran_in_child() {
        return;
    }
    if testkit::lacks("io_uring") {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            DriverBuilder::new().io(Io::Auto).install().unwrap();
            let (listener, addr) = listen().await;
            let mut clients = Vec::new();
            for _ in 0..64 {
                let (mut stream, client) = connect(&listener, addr).await;
                clients.push(client);
                tokio::spawn(async move {
                    let mut buf = [0; 64];
                    while stream.read_exact(&mut buf).await.is_ok() {
                        stream.write_all(&buf).await.unwrap();
                    }
                });
            }
            let mut before = Snapshot::now();
            for round in 0..11 {
                if round == 1 {
                    before = Snapshot::now();
                }
                for client in &mut clients {
                    client.write_all(&[round; 64]).await.unwrap();
                }
                for client in &mut clients {
                    let mut got = [0; 64];
                    client.read_exact(&mut got).await.unwrap();
                    assert_eq!(got, [round; 64]);
                }
            }
            let counts = Snapshot::now().since(&before);
            assert_eq!(counts.writes, 640, "one write for each response\n{counts}");
            assert!(counts.ring_sends >= 500, "most sends use the ring\n{counts}");
            assert!(counts.ring_enters <= 100, "responses leave in few calls\n{counts}");
        });
    });
}
