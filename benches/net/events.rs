//! Many streams of events, each event at its time.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use millstream::metrics::Snapshot;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{RecvFlags, recv};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, clock_gettime};

use crate::common::server::{Server, spawn};
use crate::common::{Row, bar, by_turns, connect, cpu_of_others, is_test, listener, table};

#[allow(dead_code, reason = "the examples answer with more than events")]
#[path = "../../examples/common/bodies.rs"]
mod bodies;

use bodies::Events;

pub(crate) const HZ: u32 = 100;

/// Events of a round: a second of all streams.
const EVENTS: u64 = 1000 * HZ as u64;

pub(crate) fn streams() -> usize {
    if is_test() { 8 } else { 1000 }
}

/// What a stream is made of after its head: a chunk of HTTP/1.1 with an event of 108 bytes.
fn frame() -> Vec<u8> {
    format!("6C\r\ndata: {}\n\n\r\n", "x".repeat(100)).into_bytes()
}

async fn answer<B>(request: Request<B>) -> Result<Response<Events>, Infallible> {
    Ok(Response::new(Events::new(request.uri().query())))
}

/// hyper on tokio's stream, as the example `stock` has it.
async fn stock(listener: TcpListener) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    loop {
        let (stream, _) = listener.accept().await?;
        let builder = builder.clone();
        tokio::spawn(async move {
            let service = TowerToHyperService::new(tower::service_fn(answer));
            // The client leaves in the middle of the stream.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn ours(listener: TcpListener) -> io::Result<()> {
    let listener = millstream::net::TcpListener::from_std(listener)?;
    millstream::server::serve(listener, tower::service_fn(answer)).await
}

/// The least that can be done: accepts, and then sends one frame to each connection at each tick, until one is gone.
pub(crate) fn floor(listener: &TcpListener, streams: usize, frame: &[u8]) {
    let mut connections: Vec<TcpStream> = (0..streams)
        .map(|_| {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let mut tick = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    loop {
        for connection in &mut connections {
            match connection.write_all(frame) {
                Ok(()) => {}
                Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => return,
                Err(e) => panic!("{e}"),
            }
        }
        tick += Duration::from_secs(1) / HZ;
        clock_nanosleep_absolute(ClockId::Monotonic, &tick.try_into().unwrap()).unwrap();
    }
}

/// The clients, all on this thread.
struct Readers {
    epoll: OwnedFd,
    readers: Vec<Reader>,
    frame: Vec<u8>,
    buffer: Vec<u8>,
}

struct Reader {
    stream: TcpStream,
    /// Bytes after the head; `None` before that is whole.
    bytes: Option<usize>,
    head: Vec<u8>,
}

impl Readers {
    fn connect(addr: SocketAddr) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let readers: Vec<Reader> = connect(addr, streams())
            .into_iter()
            .map(|mut stream| {
                stream.write_all(format!("GET /events?hz={HZ} HTTP/1.1\r\nhost: bench\r\n\r\n").as_bytes()).unwrap();
                Reader { stream, bytes: None, head: Vec::new() }
            })
            .collect();
        for (index, reader) in readers.iter().enumerate() {
            epoll::add(&epoll, &reader.stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN).unwrap();
        }
        Self { epoll, readers, frame: frame(), buffer: vec![0; 16 << 10] }
    }

    /// Reads and compares until at least this many events have arrived from now on; gives their number.
    fn read(&mut self, events: u64) -> u64 {
        let mut ready = Vec::with_capacity(self.readers.len());
        let mut arrived = 0;
        while arrived < events {
            ready.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut ready), None).unwrap();
            for event in &ready {
                let reader = &mut self.readers[event.data.u64() as usize];
                let (n, _) = recv(&reader.stream, &mut self.buffer[..], RecvFlags::DONTWAIT).unwrap();
                assert!(n > 0, "the server closed a stream that has no end");
                arrived += reader.take(&self.buffer[..n], &self.frame);
            }
        }
        arrived
    }
}

impl Reader {
    /// Takes what has arrived; gives the number of events that are whole now.
    fn take(&mut self, mut bytes: &[u8], frame: &[u8]) -> u64 {
        if self.bytes.is_none() {
            let before = self.head.len();
            self.head.extend_from_slice(bytes);
            let Some(end) = self.head.windows(4).position(|end| end == b"\r\n\r\n") else { return 0 };
            assert!(self.head.starts_with(b"HTTP/1.1 200 "), "{}", self.head.escape_ascii());
            self.bytes = Some(0);
            bytes = &bytes[end + 4 - before..];
        }
        let Some(seen) = &mut self.bytes else { unreachable!("it was set above") };
        let before = *seen / frame.len();
        while !bytes.is_empty() {
            let at = *seen % frame.len();
            let len = bytes.len().min(frame.len() - at);
            assert!(bytes[..len] == frame[at..at + len], "{}", bytes.escape_ascii());
            *seen += len;
            bytes = &bytes[len..];
        }
        (*seen / frame.len() - before) as u64
    }
}

/// What a server has used: CPU time, and what our streams called meanwhile.
struct Used {
    events: u64,
    cpu: Duration,
    calls: Snapshot,
}

/// Reads at least so many events of a server, after some that nobody counts.
fn measure(addr: SocketAddr, events: u64) -> Used {
    let mut readers = Readers::connect(addr);
    readers.read(events / 4);
    let (cpu, calls) = (cpu_of_others(), Snapshot::now());
    let events = readers.read(events);
    Used { events, cpu: cpu_of_others().saturating_sub(cpu), calls: Snapshot::now().since(&calls) }
}

fn measure_floor(events: u64) -> Used {
    let (listener, streams) = (listener(), streams());
    let addr = listener.local_addr().unwrap();
    let thread = spawn(move || floor(&listener, streams, &frame()));
    let used = measure(addr, events);
    thread.join().unwrap();
    used
}

pub(crate) fn compare() -> String {
    const NAMES: [&str; 3] = ["stock", "floor", "millstream"];
    let mut calls = String::new();
    let cpu = by_turns(NAMES.len(), EVENTS, |contender, events| {
        let used = match NAMES[contender] {
            "stock" => measure(Server::start(stock).addr, events),
            "floor" => measure_floor(events),
            _ => measure(Server::start(ours).addr, events),
        };
        let for_each = |calls: u64| calls as f64 / used.events as f64;
        if NAMES[contender] == "millstream" {
            let (sent, entered) =
                (for_each(used.calls.writes.saturating_sub(used.calls.ring_sends)), for_each(used.calls.ring_enters));
            calls = format!("calls/event: {sent:.3} that send, {entered:.3} into a ring");
        }
        used.cpu.mul_f64(events as f64 / used.events as f64)
    });
    let rows = NAMES.iter().zip(&cpu).map(|(name, cpu)| {
        let note = if *name == "millstream" { calls.clone() } else { String::new() };
        Row { name: (*name).to_owned(), cpu: *cpu, note }
    });
    let title = format!("events, {} streams x {HZ} Hz", streams());
    let [stock, floor, ours] = cpu[..] else { unreachable!("one for each name") };
    let bars = [bar("events against stock", ours / stock, 0.88), bar("events against the floor", ours / floor, 1.12)];
    table(&title, "event", &rows.collect::<Vec<_>>()) + &bars.concat()
}
