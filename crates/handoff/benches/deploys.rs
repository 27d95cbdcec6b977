//! Deploys under load: thousands of readers of events, or of idle connections with requests, whose server is replaced
//! again and again by a new process. Next to it, readers whose server gives only its listeners to the next process, and ends
//! their streams within a second.
//!
//! `cargo bench -p millstream-handoff -- readers | drained | idle [clients] [deploys]`: each takes a minute. Fails if a client
//! notices a deploy, but for `drained`. Without one of these words, as in a bench of everything, nothing runs.

use std::convert::Infallible;
use std::env;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{Request, Response};
use millstream::server::{Limits, RequestBody, serve};
use millstream::sse::{Event, Hub};
use millstream_handoff::Handoff;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

/// Time after which a client hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Time of the drain of a process, after which its connections are cut.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time from one deploy to the next.
const BETWEEN: Duration = Duration::from_millis(500);
const EVENTS_A_SECOND: u64 = 100;
const REQUESTS_A_SECOND: u64 = 1000;
/// The data of the last event.
const LAST: &[u8] = b"data: last\n";

fn main() {
    let words: Vec<_> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    // As with criterion: `cargo bench` says so.
    let is_test = env::args().all(|word| word != "--bench");
    let number = |at: usize, or: usize| words.get(at).map_or(or, |word| word.parse().expect("a number"));
    // Servers inherit it.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    match words.first().map(String::as_str) {
        Some("child") => {
            child(Path::new(&words[1]), &words[2], words[3].parse().expect("an address"), words[4] == "moves");
        }
        Some("readers") => readers(number(1, 10_000), number(2, 20), true),
        Some("drained") => readers(number(1, 10_000), number(2, 3), false),
        Some("idle") => idle(number(1, 5000), number(2, 20)),
        _ if is_test => {
            readers(20, 2, true);
            readers(20, 2, false);
            idle(20, 2);
        }
        _ => println!("deploys under load: cargo bench -p millstream-handoff -- readers | drained | idle"),
    }
}

/// A process that serves, until another one takes its place. Says so on its standard output. Unless its connections move, it
/// ends their streams.
fn child(path: &Path, number: &str, addr: SocketAddr, moves: bool) {
    let limits = Limits::default().connections(100_000).per_address(100_000).keep_alive(Duration::from_secs(600));
    Runtime::new().unwrap().block_on(async {
        let hub = Hub::builder().replay(10_000).queue(10_000).subscribers(100_000).past_layers(true).build();
        let mut handoff = Handoff::open(path).await.unwrap();
        let listener = handoff.tcp("http", addr).await.unwrap();
        if moves {
            handoff.hub("events", &hub).unwrap();
        }
        let serving = handoff.ready().await.unwrap();
        let events = hub.clone();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let response = match request.uri().path() {
                "/events" => events.subscribe(&request).map(Either::Left),
                path => Response::new(Either::Right(Full::new(Bytes::from(path.to_owned())))),
            };
            async { Ok::<_, Infallible>(response) }
        });
        println!("serves {}", listener.get_ref().local_addr().unwrap());
        let number = number.to_owned();
        let sender = tokio::spawn(async move {
            let mut lines = tokio::io::BufReader::new(tokio::io::stdin());
            let mut word = String::new();
            // The readers are there.
            tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut word).await.unwrap();
            let mut ticks = interval(Duration::from_secs(1) / EVENTS_A_SECOND as u32);
            let last = async {
                let mut word = String::new();
                tokio::io::AsyncBufReadExt::read_line(&mut lines, &mut word).await.unwrap_or(0);
            };
            tokio::pin!(last);
            for n in 0u64.. {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = &mut last => {
                        let _ = hub.send(Event::new().data("last"));
                        return;
                    }
                }
                if hub.send(Event::new().data(format!("{number}:{n}"))).is_err() {
                    return;
                }
            }
        });
        let server = serve(listener.clone(), service).limits(limits.drain_spread(Duration::from_secs(1)));
        let server = if moves { server.move_connections(listener.give()) } else { server };
        let begins = serving.successor();
        let (begun, since) = tokio::sync::oneshot::channel();
        let signal = async move {
            begins.await;
            let _ = begun.send(Instant::now());
        };
        let drained = server.drain(signal, DEADLINE).await.unwrap();
        serving.finish().await.unwrap();
        let took = since.await.unwrap().elapsed();
        sender.abort();
        println!("moved {} {} {}", drained.moved, drained.connections - drained.moved, took.as_micros());
    });
}

struct Process {
    process: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    addr: SocketAddr,
}

/// What a process has handed over.
#[derive(Debug)]
struct Moved {
    moved: usize,
    stayed: usize,
    took: Duration,
}

impl Process {
    fn start(path: &Path, number: usize, addr: &str, moves: bool) -> Self {
        let how = if moves { "moves" } else { "drains" };
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["child".as_ref(), path.as_os_str(), number.to_string().as_ref(), addr.as_ref(), how.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = output.next().expect("it serves").unwrap();
        let addr = line.strip_prefix("serves ").expect("an address").parse().unwrap();
        Self { input: process.stdin.take(), process, output, addr }
    }

    /// Lets it send events, and then the last one.
    fn tell(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn ended(mut self) -> Moved {
        let line = self.output.next().expect("it has moved").unwrap();
        // It may wait for a word.
        drop(self.input.take());
        let words: Vec<_> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        assert!(self.process.wait().unwrap().success());
        let took = Duration::from_micros(words[2]);
        Moved { moved: words[0] as usize, stayed: words[1] as usize, took }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Replaces the process again and again. Returns the last one.
async fn deploys(path: &Path, mut process: Process, deploys: usize, moves: bool) -> Process {
    let mut all = Vec::new();
    for number in 2..deploys + 2 {
        sleep(BETWEEN).await;
        let path = path.to_owned();
        let replace = move || {
            let mut next = Process::start(&path, number, "127.0.0.1:0", moves);
            next.tell();
            (process.ended(), next)
        };
        let (moved, next) = tokio::task::spawn_blocking(replace).await.unwrap();
        process = next;
        all.push(moved);
    }
    all.sort_by_key(|moved| moved.took);
    let longest = all.last().map_or(Duration::ZERO, |moved| moved.took);
    let median = all[all.len() / 2].took;
    let stayed: usize = all.iter().map(|moved| moved.stayed).sum();
    let moved: usize = all.iter().map(|moved| moved.moved).sum();
    println!("  {deploys} deploys: {moved} connections moved, {stayed} ended");
    println!(
        "  time of a handover, with 250 ms in which requests on their way arrive: median {median:.0?}, longest {longest:.0?}"
    );
    process
}

/// What a reader has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Got {
    events: u64,
    /// A digest of the data of all events, in their order.
    digest: u64,
}

/// What readers have noticed.
#[derive(Debug, Default)]
struct Noticed {
    /// The longest time without an event, in microseconds.
    longest: AtomicU64,
    gaps: AtomicU64,
    reconnects: AtomicU64,
}

/// Subscribes to the events behind the one with the id `last`.
async fn subscribe(addr: SocketAddr, last: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET /events HTTP/1.0\r\nHost: a\r\nLast-Event-ID: {last}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    // The head: the reader is there.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(stream)
}

/// Reads to the last event. Returns to `again` when the stream ends.
async fn read(mut stream: TcpStream, start: Instant, noticed: Arc<Noticed>, again: Option<SocketAddr>) -> Got {
    let (mut got, mut rest, mut id) = (Got::default(), Vec::new(), String::new());
    let (mut bytes, mut before) = (vec![0; 16 << 10], None);
    loop {
        let n = timeout(HANGS, stream.read(&mut bytes)).await.expect("an event").expect("no reset");
        if n == 0 {
            let again = again.expect("the connection has ended");
            noticed.reconnects.fetch_add(1, Ordering::Relaxed);
            rest.clear();
            stream = loop {
                // The queue of the listener may be full.
                match subscribe(again, &id).await {
                    Ok(stream) => break stream,
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            };
            continue;
        }
        let now = start.elapsed().as_micros() as u64;
        if let Some(before) = before.replace(now) {
            noticed.longest.fetch_max(now - before, Ordering::Relaxed);
        }
        rest.extend_from_slice(&bytes[..n]);
        let mut from = 0;
        while let Some(len) = rest[from..].iter().position(|&byte| byte == b'\n') {
            let line = &rest[from..=from + len];
            from += len + 1;
            if line == LAST {
                return got;
            }
            if line.starts_with(b"data: ") {
                got.events += 1;
                // FNV-1a.
                got.digest =
                    line.iter().fold(got.digest, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
            } else if line.starts_with(b"event: gap") {
                noticed.gaps.fetch_add(1, Ordering::Relaxed);
            } else if let Some(new) = line.strip_prefix(b"id: ") {
                id = String::from_utf8_lossy(new.trim_ascii()).into_owned();
            }
        }
        rest.drain(..from);
    }
}

fn readers(count: usize, times: usize, moves: bool) {
    let how = if moves { "which move" } else { "which end" };
    println!("{count} readers of {EVENTS_A_SECOND} events a second, on connections of HTTP/1.0 {how}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control");
    Runtime::new().unwrap().block_on(async {
        let mut process = Process::start(&path, 1, "127.0.0.1:0", moves);
        let (addr, start, noticed) = (process.addr, Instant::now(), Arc::<Noticed>::default());
        let mut clients = JoinSet::new();
        for _ in 0..count {
            let stream = subscribe(addr, "").await.unwrap();
            clients.spawn(read(stream, start, Arc::clone(&noticed), (!moves).then_some(addr)));
        }
        process.tell();
        let mut last = deploys(&path, process, times, moves).await;
        sleep(BETWEEN).await;
        last.tell();
        let mut all = Vec::new();
        while let Some(got) = clients.join_next().await {
            all.push(got.expect("a reader that noticed nothing"));
        }
        let (events, same) = (all[0].events, all.iter().filter(|got| **got == all[0]).count());
        let [gaps, reconnects] = [&noticed.gaps, &noticed.reconnects].map(|count| count.load(Ordering::Relaxed));
        if moves {
            assert_eq!((same, gaps, reconnects), (count, 0, 0), "readers that have noticed a deploy");
        }
        println!("  {events} events at a reader, the same in the same order at {same} readers; {reconnects} reconnects, {gaps} gaps");
        let longest = Duration::from_micros(noticed.longest.load(Ordering::Relaxed));
        println!("  longest time without an event at a reader: {longest:.0?}");
    });
}

fn idle(count: usize, times: usize) {
    println!("{count} idle connections, {REQUESTS_A_SECOND} requests a second on any of them");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control");
    Runtime::new().unwrap().block_on(async {
        let process = Process::start(&path, 1, "127.0.0.1:0", true);
        let addr = process.addr;
        let (end, ends) = watch::channel(());
        let (requests, longest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut clients = JoinSet::new();
        let period = Duration::from_secs(1) * count as u32 / REQUESTS_A_SECOND as u32;
        for number in 0..count as u32 {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let (mut ends, requests, longest) = (ends.clone(), Arc::clone(&requests), Arc::clone(&longest));
            clients.spawn(async move {
                for turn in 0u32.. {
                    let (path, since) = (format!("/{number}/{turn}"), Instant::now());
                    timeout(HANGS, ask(&mut stream, &path)).await.expect("an answer");
                    longest.fetch_max(since.elapsed().as_micros() as u64, Ordering::Relaxed);
                    requests.fetch_add(1, Ordering::Relaxed);
                    // From 0 to twice the period.
                    let part = number.wrapping_mul(7919).wrapping_add(turn.wrapping_mul(104_729)) % 1024;
                    tokio::select! {
                        () = sleep(period * part / 512) => {}
                        _ = ends.changed() => break,
                    }
                }
            });
        }
        let _last = deploys(&path, process, times, true).await;
        end.send_replace(());
        while let Some(client) = clients.join_next().await {
            client.expect("a client that noticed nothing");
        }
        let longest = Duration::from_micros(longest.load(Ordering::Relaxed));
        println!(
            "  {} requests, each answered on its connection; longest {longest:.0?}",
            requests.load(Ordering::Relaxed)
        );
    });
}

/// Asks on a connection that has to stay open.
async fn ask(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.expect("an open connection");
    let (mut answer, mut bytes) = (Vec::new(), [0; 1024]);
    loop {
        let n = stream.read(&mut bytes).await.expect("no reset");
        assert!(n > 0, "the connection has ended behind {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..n]);
        if answer.windows(4).any(|end| end == b"\r\n\r\n") && answer.ends_with(path.as_bytes()) {
            assert!(answer.starts_with(b"HTTP/1.1 200 "));
            return;
        }
    }
}
