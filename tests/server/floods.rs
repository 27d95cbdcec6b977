//! Floods of HTTP/2 frames from known vulnerabilities: memory stays bounded, and other clients are served.
//!
//! | flood | known as |
//! |---|---|
//! | HEADERS and RST_STREAM | CVE-2023-44487, CVE-2023-26964 |
//! | invalid WINDOW_UPDATE, which makes the server reset | CVE-2025-8671 |
//! | CONTINUATION without an end | CVE-2024-27316 |
//! | empty DATA | CVE-2019-9518, RUSTSEC-2026-0258 |
//! | PING, SETTINGS | CVE-2019-9512, CVE-2019-9515 |
//!
//! The server runs in its own process, so that its memory is measured alone. Each flood lasts 1 s, or
//! `MILLSTREAM_FLOOD` seconds; a client whose connection was closed reconnects.

#![expect(clippy::disallowed_methods, reason = "the clients are threads without a runtime")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::RequestBody;

use testkit::child;
use testkit::http::{BoxError, Flavour};
use testkit::served::{Server, until_ended};
use testkit::serving::serve;

const NAME: &str = "floods::floods_cost_no_memory_and_others_are_served";

const GROWTH: u64 = 32 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames, RFC 9113 §6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `GET / http` with an authority of `a`, encoded by HPACK's static table (RFC 7541 appendix A).
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];
/// The same as a `POST`.
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a'];

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A flood: the initial frames, and the frames repeated with new stream ids.
struct Flood {
    name: &'static str,
    first: fn(&mut Vec<u8>),
    next: fn(&mut Vec<u8>, u32),
}

const FLOODS: [Flood; 7] = [
    Flood {
        name: "rapid reset",
        first: |_| {},
        next: |out, id| {
            frame(out, HEADERS, END_HEADERS | END_STREAM, id, GET);
            frame(out, RST_STREAM, 0, id, &8u32.to_be_bytes());
        },
    },
    Flood {
        name: "reset of open uploads",
        first: |_| {},
        next: |out, id| {
            frame(out, HEADERS, END_HEADERS, id, POST);
            frame(out, DATA, 0, id, &[0; 100]);
            frame(out, RST_STREAM, 0, id, &8u32.to_be_bytes());
        },
    },
    Flood {
        name: "made you reset",
        first: |_| {},
        next: |out, id| {
            frame(out, HEADERS, END_HEADERS | END_STREAM, id, GET);
            // An increment of 0 is a stream error.
            frame(out, WINDOW_UPDATE, 0, id, &[0; 4]);
        },
    },
    Flood {
        name: "CONTINUATION",
        first: |out| frame(out, HEADERS, END_STREAM, 1, GET),
        // An unindexed field of 1000 bytes.
        next: |out, _| {
            let field = [&[0, 1, b'x', 0x7f, 0xe9, 6][..], &[b'y'; 1000]].concat();
            frame(out, CONTINUATION, 0, 1, &field);
        },
    },
    Flood {
        name: "empty DATA",
        first: |out| frame(out, HEADERS, END_HEADERS, 1, POST),
        next: |out, _| frame(out, DATA, 0, 1, &[]),
    },
    Flood { name: "PING", first: |_| {}, next: |out, id| frame(out, PING, 0, 0, &u64::from(id).to_be_bytes()) },
    Flood { name: "SETTINGS", first: |_| {}, next: |out, _| frame(out, SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]) },
];

fn flood(addr: SocketAddr, flood: &Flood, enough: &AtomicBool, connections: &AtomicU64) -> u64 {
    let mut sent = 0;
    while !enough.load(Ordering::Relaxed) {
        connections.fetch_add(1, Ordering::Relaxed);
        // The server may close the connection at any point.
        let Err(_) = until_thrown_out(addr, flood, enough, &mut sent) else { break };
    }
    sent
}

fn until_thrown_out(addr: SocketAddr, flood: &Flood, enough: &AtomicBool, sent: &mut u64) -> io::Result<()> {
    let mut io = TcpStream::connect(addr)?;
    io.set_write_timeout(Some(Duration::from_millis(200)))?;
    let mut out = PREFACE.to_vec();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    (flood.first)(&mut out);
    for id in (1..u32::MAX / 2).step_by(2) {
        if enough.load(Ordering::Relaxed) {
            return Ok(());
        }
        (flood.next)(&mut out, id);
        *sent += 1;
        if out.len() >= 16 << 10 {
            // The client never reads the responses.
            io.write_all(&out)?;
            out.clear();
        }
    }
    Ok(())
}

/// A well-behaved client: sends requests until `enough`; returns the latencies in order.
fn good(addr: SocketAddr, enough: &AtomicBool) -> Vec<Duration> {
    let mut io = TcpStream::connect(addr).unwrap();
    io.set_read_timeout(Some(testkit::HANGS)).unwrap();
    let mut times = Vec::new();
    // At least one, also on a machine that is too busy to begin in time.
    while times.is_empty() || !enough.load(Ordering::Relaxed) {
        let asked = Instant::now();
        io.write_all(b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n").unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"hello") {
            let mut some = [0; 1000];
            let n = match io.read(&mut some) {
                // A process that is stopped and continued: signal(7) names reads with a timeout.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert!(n > 0, "the server has closed the connection of a good client");
            got.extend_from_slice(&some[..n]);
        }
        times.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    times.sort();
    times
}

#[test]
fn floods_cost_no_memory_and_others_are_served() {
    if let Some(flavour) = child::task() {
        return run(Flavour::BOTH[flavour.parse::<usize>().unwrap()]);
    }
    let seconds = std::env::var("MILLSTREAM_FLOOD").map_or(1, |seconds| seconds.parse().unwrap());
    let flavour = Flavour::BOTH.iter().position(|&flavour| flavour == Flavour::TwoWorkers).unwrap();
    for each in FLOODS {
        let mut server = Server::start(&mut child::command(NAME, &flavour.to_string()));
        let (addr, enough, connections) = (server.addr, AtomicBool::new(false), AtomicU64::new(0));
        // Excludes the memory of a few connections and of the threads.
        drop(good_once(addr));
        let before = server.memory()["VmRSS"];
        let (sent, times) = std::thread::scope(|scope| {
            let flooders: Vec<_> = (0..2).map(|_| scope.spawn(|| flood(addr, &each, &enough, &connections))).collect();
            let good = scope.spawn(|| good(addr, &enough));
            std::thread::sleep(Duration::from_secs(seconds));
            enough.store(true, Ordering::Relaxed);
            (flooders.into_iter().map(|flooder| flooder.join().unwrap()).sum::<u64>(), good.join().unwrap())
        });
        let grown = server.memory()["VmHWM"].saturating_sub(before);
        let p99 = times[times.len() * 99 / 100];
        let thrown = connections.load(Ordering::Relaxed);
        println!(
            "{}: {sent} on {thrown} connections; grown by {grown} KiB at most; {} good answers, p99 {p99:?}",
            each.name,
            times.len()
        );
        assert!(sent > 100, "{}: {sent} frames are too few", each.name);
        assert!(grown <= GROWTH, "{}: {grown} KiB", each.name);
        assert!(p99 < testkit::HANGS, "{}: {p99:?}", each.name);
        server.end();
    }
}

fn good_once(addr: SocketAddr) -> Vec<Duration> {
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| good(addr, &enough));
        std::thread::sleep(Duration::from_millis(100));
        enough.store(true, Ordering::Relaxed);
        good.join().unwrap()
    })
}

fn run(flavour: Flavour) {
    flavour.runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            let _all = request.into_body().collect().await?;
            Ok::<_, BoxError>(Response::new(Full::new(Bytes::from_static(b"hello"))))
        });
        tokio::spawn(serve(listener, service).into_future());
        until_ended(addr).await;
    });
}
