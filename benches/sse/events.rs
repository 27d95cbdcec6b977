//! Many streams of events, each event at its time: an event of 108 bytes on each of 1000 streams, 100 times a second.
//!
//! | row | |
//! |---|---|
//! | millstream | [`http::serve`](millstream::http::serve()) |
//! | hyper, tokio's stream | hyper-util's server on tokio's listener |
//! | floor | a bare loop of `send` on blocking sockets, nothing else |

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use millstream::observe::Snapshot;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{RecvFlags, recv};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::common::contest::{By, Case, Contender, Goal, Run, Spent};
use crate::common::options::options;
use crate::common::server::{Server, spawn};
use crate::common::suite::Suite;
use crate::common::{connect, cpu_of_others, listener};

pub(crate) const HZ: u32 = 100;

/// Events of a turn: half a second of all streams.
pub(crate) const EVENTS: u64 = 500 * HZ as u64;

pub(crate) fn streams() -> usize {
    if options().test { 8 } else { 1000 }
}

/// A stream after its head: a chunk of HTTP/1.1 with an event of 108 bytes.
fn frame() -> Vec<u8> {
    [b"6C\r\n", &EVENT[..], b"\r\n"].concat()
}

/// One event: 100 bytes of payload in 8 bytes of framing.
static EVENT: [u8; 108] = {
    let mut event = [b'x'; 108];
    event.split_at_mut(6).0.copy_from_slice(b"data: ");
    event.split_at_mut(106).1.copy_from_slice(b"\n\n");
    event
};

/// Events at a steady rate until the client leaves.
struct Events(Interval);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.0.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&EVENT)))))
    }
}

async fn answer<B>(_: Request<B>) -> Result<Response<Events>, Infallible> {
    let mut ticks = interval(Duration::from_secs(1) / HZ);
    // A reader that was slow gets the next event, not a burst of old ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Ok(Response::new(Events(ticks)))
}

/// hyper on tokio's stream.
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
    millstream::http::serve(listener, tower::service_fn(answer)).await
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
                stream.write_all(b"GET /events HTTP/1.1\r\nhost: bench\r\n\r\n").unwrap();
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

/// Connects, reads some events that do not count, and then at least so many; what those took.
fn measure(addr: SocketAddr, events: u64) -> (Spent, Snapshot) {
    let mut readers = Readers::connect(addr);
    readers.read(events / 4);
    let (start, cpu, calls) = (Instant::now(), cpu_of_others(), Snapshot::now());
    let arrived = readers.read(events);
    let calls = Snapshot::now().since(&calls);
    let part = events as f64 / arrived as f64;
    let cpu = cpu_of_others().saturating_sub(cpu).mul_f64(part);
    (Spent { cpu, wall: start.elapsed().mul_f64(part) }, calls)
}

fn measure_floor(events: u64) -> Spent {
    let (listener, streams) = (listener(), streams());
    let addr = listener.local_addr().unwrap();
    let thread = spawn(move || floor(&listener, streams, &frame()));
    let (spent, _) = measure(addr, events);
    thread.join().unwrap();
    spent
}

/// Our server, with its calls of the last turn.
#[derive(Default)]
struct Ours {
    calls: String,
}

impl Run for Ours {
    fn run(&mut self, events: u64) -> Spent {
        let (spent, calls) = measure(Server::start(ours).addr, events);
        let for_each = |calls: u64| calls as f64 / events as f64;
        let (sent, entered) = (for_each(calls.writes.saturating_sub(calls.ring_sends)), for_each(calls.ring_enters));
        self.calls = format!("calls/event: {sent:.3} that send, {entered:.3} into a ring");
        spent
    }

    fn note(&mut self) -> String {
        std::mem::take(&mut self.calls)
    }
}

pub(crate) fn run(suite: &mut Suite) {
    let title = format!("events, {} streams x {HZ} Hz", streams());
    let goal = |against, most| Goal { against, by: By::Cpu, most };
    let goals = [goal("hyper, tokio's stream", 0.88), goal("floor, bare sends", 1.12)];
    let case = Case { operations: Some(EVENTS), goals: &goals, ..Case::new(&title, "CPU us/event", 1) };
    suite.run(&case, || {
        vec![
            Contender { name: "millstream", run: Box::new(Ours::default()) },
            Contender::new("hyper, tokio's stream", |events| measure(Server::start(stock).addr, events).0),
            Contender::new("floor, bare sends", measure_floor),
        ]
    });
}
