//! Resources of copies: calls, pipes, descriptors, threads. These belong to the process, so the tests run one at a time
//! and alone in this program.

#[allow(dead_code, reason = "a part is used")]
use std::io::{Read, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::ends::{Source, Target, feed, tcp};
use millstream::copy::{Copier, copy, copy_bidirectional};
use millstream::metrics::Snapshot;
use socket2::SockRef;
use testkit::http::{Flavour, watched};
use testkit::{HANGS, alone, child, lacks, noise, strace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::yield_now;

/// Returns the link targets of this process's descriptors, without the pool's pipes, which come in pairs.
fn fds() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut all: Vec<_> =
        links.filter_map(|link| Some(std::fs::read_link(link.ok()?.path()).ok()?.display().to_string())).collect();
    all.sort();
    all
}

/// Counts pipe ends, without those that existed before the first test.
fn pipes() -> usize {
    static BEFORE: OnceLock<Vec<String>> = OnceLock::new();
    let all: Vec<_> = fds().into_iter().filter(|fd| fd.starts_with("pipe:")).collect();
    let before = BEFORE.get_or_init(|| all.clone());
    all.iter().filter(|fd| !before.contains(fd)).count()
}

fn sockets() -> usize {
    fds().iter().filter(|fd| fd.starts_with("socket:")).count()
}

/// Counts the threads of this process, including kernel threads that work for it.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

async fn soon(what: &str, fine: impl Fn() -> bool) {
    let since = Instant::now();
    while !fine() {
        assert!(since.elapsed() < HANGS, "{what}: {:#?}", fds());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn on_both(test: impl AsyncFn() + Send + Sync + 'static) {
    watched(move || {
        // Excludes the pipes that exist now.
        pipes();
        for flavour in Flavour::BOTH {
            println!("on {flavour:?}");
            flavour.runtime().block_on(test());
        }
    });
}

const ROUNDS: usize = 100;

/// Exchanges messages of 64 bytes through a relay; the ends are threads without other work.
fn ping_pong(millstream: bool) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let pair = || {
        let one = std::net::TcpStream::connect(addr).unwrap();
        let other = listener.accept().unwrap().0;
        one.set_nodelay(true).unwrap();
        other.set_nodelay(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other)
    };
    let ((mut client, a), (mut server, b)) = (pair(), pair());
    let echo = thread::spawn(move || {
        let mut message = [0; 64];
        while server.read_exact(&mut message).is_ok() {
            server.write_all(&message).unwrap();
        }
    });
    let ask = thread::spawn(move || {
        for round in 0..ROUNDS {
            let mut message = [round as u8; 64];
            client.write_all(&message).unwrap();
            client.read_exact(&mut message).unwrap();
            assert_eq!(message, [round as u8; 64]);
        }
    });
    Flavour::CurrentThread.runtime().block_on(async {
        let (mut a, mut b) = (TcpStream::from_std(a).unwrap(), TcpStream::from_std(b).unwrap());
        if millstream {
            copy_bidirectional(&mut a, &mut b).await.unwrap();
        } else {
            tokio::io::copy_bidirectional(&mut a, &mut b).await.unwrap();
        }
    });
    ask.join().unwrap();
    echo.join().unwrap();
}

#[test]
fn small_messages_take_no_more_calls_than_with_tokio() {
    const TEST: &str = "counts::small_messages_take_no_more_calls_than_with_tokio";
    if let Some(told) = child::task() {
        return ping_pong(told == "millstream");
    }
    // The calls that move bytes or wait.
    let calls =
        "trace=read,write,readv,writev,recvfrom,sendto,recvmsg,sendmsg,splice,poll,ppoll,epoll_wait,epoll_pwait";
    let [ours, theirs] = ["millstream", "tokio"].map(|who| {
        let trace = strace::run(&child::command(TEST, who), &["-e", calls])?;
        // A call interrupted by another thread's has two lines.
        Some(trace.lines().filter(|line| !line.contains(" resumed>")).count())
    });
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    println!("{ours} calls, with tokio {theirs}");
    // For each message: four calls by the ends, four by the relay, and the waits.
    assert!(theirs >= 8 * ROUNDS, "{theirs} were traced");
    // Our relay also probes the machine, and the number of polls of the runtime varies.
    assert!(ours <= theirs + theirs / 20, "{ours} calls, {theirs} with tokio");
}

/// Relays enough bytes to use pipes. Returns both ends.
async fn flood(len: usize) {
    let mut from = <TcpStream as Source>::open(noise(len)).await;
    let (mut to, got) = <TcpStream as Target>::open().await;
    assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, len as u64);
    to.close().await;
    assert!(got.await.unwrap().unwrap() == noise(len));
}

#[test]
fn pipes_are_used_again() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        if lacks("splice") {
            return;
        }
        flood(2 << 20).await;
        let before = (Snapshot::now(), fds());
        for _ in 0..20 {
            flood(2 << 20).await;
        }
        let counted = Snapshot::now().since(&before.0);
        assert_eq!((counted.pipes_made, counted.pipes_closed), (0, 0), "{counted}");
        assert!(counted.copied_by_splice > 0, "{counted}");
        soon("left open", || fds().len() == before.1.len()).await;
    });
}

/// Idle connections hold no pipes, even after a large transfer.
#[test]
fn a_relay_that_waits_holds_no_pipe() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const RELAYS: usize = 200;
        let mut relays = Vec::new();
        for n in 0..RELAYS {
            let ((mut a, mut client), (mut b, mut server)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
            let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
            let bytes = noise(100_000 + n);
            let (sent, mut got) = (bytes.clone(), vec![0; bytes.len()]);
            let (written, read) = tokio::join!(client.write_all(&sent), server.read_exact(&mut got));
            written.unwrap();
            read.unwrap();
            assert!(got == bytes);
            relays.push((client, server, relay));
        }
        yield_now().await;
        // At most the idle pipes of the pool.
        assert!(pipes() <= 2 * 16, "{} ends of pipes", pipes());
        for (client, server, relay) in relays {
            drop((client, server));
            let (there, _) = relay.await.unwrap().unwrap();
            assert!(there.bytes >= 100_000);
        }
    });
}

/// 400 stalled readers: no kernel thread waits for them, and few of them hold a pipe.
#[test]
fn stalled_readers_hold_no_threads_and_few_pipes() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const READERS: usize = 400;
        let before = (threads(), fds().len());
        let mut stalled = Vec::new();
        for n in 0..READERS {
            let (mut a, mut sender) = UnixStream::pair().unwrap();
            let (mut b, reader) = UnixStream::pair().unwrap();
            let send =
                tokio::spawn(async move { sender.write_all(&vec![n as u8; 600_000]).await.map(|()| drop(sender)) });
            let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
            stalled.push((reader, send, relay));
        }
        // Until nothing moves any more.
        let moved =
            || Snapshot::now().named().filter(|(name, _)| name.starts_with("copied")).map(|(_, n)| n).sum::<u64>();
        let mut last = u64::MAX;
        while last != moved() {
            last = moved();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(threads() <= before.0 + 8, "{} threads, {} before", threads(), before.0);
        assert!(pipes() <= 2 * 64, "{} ends of pipes", pipes());
        for (n, (mut reader, send, relay)) in stalled.into_iter().enumerate() {
            let mut all = Vec::new();
            // The relay ends once both directions have ended.
            reader.shutdown().await.unwrap();
            reader.read_to_end(&mut all).await.unwrap();
            assert!(all.len() == 600_000 && all.iter().all(|&byte| byte == n as u8), "{n}: {} bytes", all.len());
            send.await.unwrap().unwrap();
            drop(reader);
            assert_eq!(relay.await.unwrap().unwrap().0.bytes, 600_000);
        }
        let idle = 2 * 16;
        soon("left open", || fds().len() <= before.1 + idle).await;
    });
}

/// A copy dropped with bytes in its pipe closes the pipe, so no other copy can read them.
#[test]
fn a_pipe_that_is_not_empty_is_never_used_again() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        if lacks("splice") {
            return;
        }
        let open = sockets();
        for round in 0..20u8 {
            let before = Snapshot::now();
            let (mut from, feeder) = tcp().await;
            feed(feeder, vec![b'!'; 4 << 20]);
            let (mut to, mut reader) = tcp().await;
            SockRef::from(&to).set_send_buffer_size(32 << 10).unwrap();
            SockRef::from(&reader).set_recv_buffer_size(32 << 10).unwrap();
            let mut copy = Copier::new();
            while copy.pending() < 40_000 {
                let mut piece = vec![0; 50_000];
                tokio::select! {
                    biased;
                    read = reader.read_exact(&mut piece) => drop(read.unwrap()),
                    _ = copy.run(&mut from, &mut to) => panic!("it has ended"),
                }
                for _ in 0..20 {
                    tokio::select! {
                        biased;
                        _ = copy.run(&mut from, &mut to) => panic!("it has ended"),
                        () = yield_now() => {}
                    }
                }
            }
            drop(copy);
            let counted = Snapshot::now().since(&before);
            assert_eq!(counted.pipes_closed, 1, "{counted}");
            drop((from, to, reader));
            // The next copy receives exactly its own bytes.
            let mut from = <TcpStream as Source>::open(vec![round; 1 << 20]).await;
            let (mut to, got) = <TcpStream as Target>::open().await;
            copy_all(&mut from, &mut to).await;
            to.close().await;
            assert!(got.await.unwrap().unwrap() == vec![round; 1 << 20]);
        }
        soon("left open", || sockets() == open).await;
    });
}

async fn copy_all(from: &mut TcpStream, to: &mut TcpStream) {
    copy(from, to).await.unwrap();
}

/// Connections open and close so that descriptors are reused, with bytes that identify their connection; some are
/// reset.
#[test]
fn no_byte_is_ever_on_the_wrong_connection() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        const TASKS: usize = 16;
        const ROUNDS: usize = 12;
        let open = sockets();
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                tokio::spawn(async move {
                    for round in 0..ROUNDS {
                        let tag = (task * ROUNDS + round) as u8;
                        let ((mut a, mut client), (mut b, mut server)) = (tcp().await, tcp().await);
                        let relay = tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await });
                        let dies = round % 3 == 0;
                        let send = tokio::spawn(async move {
                            let sent = client.write_all(&vec![tag; 400_000]).await;
                            if dies {
                                SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
                            }
                            sent
                        });
                        let (mut piece, mut got) = (vec![0; 30_000], 0);
                        while let Ok(n @ 1..) = server.read(&mut piece).await {
                            assert!(piece[..n].iter().all(|&byte| byte == tag), "bytes of another connection");
                            got += n;
                        }
                        drop(server);
                        let _ = send.await.unwrap();
                        let relayed = relay.await.unwrap();
                        assert!(dies || (relayed.is_ok() && got == 400_000), "{relayed:?} after {got}");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        soon("left open", || sockets() == open).await;
        assert!(pipes() <= 2 * 16, "{} ends of pipes", pipes());
    });
}

/// A reset in the middle of a transfer: the error is prompt, and all resources are returned.
#[test]
fn a_reset_leaves_nothing_behind() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        flood(1 << 20).await;
        soon("at first", || pipes() <= 2 * 16).await;
        let before = (fds().len(), sockets());
        for pending in [0usize, 1, 20_000, 500_000] {
            for _ in 0..5 {
                let ((mut a, mut client), (mut b, mut server)) = (tcp().await, tcp().await);
                let relay = tokio::spawn(async move {
                    let relayed = copy_bidirectional(&mut a, &mut b).await;
                    drop((a, b));
                    relayed
                });
                client.write_all(&vec![7; 1000 + pending]).await.unwrap();
                server.read_exact(&mut vec![0; 1000]).await.unwrap();
                for stream in [client, server] {
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                }
                let relayed = tokio::time::timeout(HANGS, relay).await.expect("within a bound").unwrap();
                assert!(relayed.is_err());
            }
        }
        // The number of pooled pipes may change by a few.
        let limit = before.0 + 2 * 16;
        soon("left open", || fds().len() <= limit && sockets() == before.1).await;
    });
}
