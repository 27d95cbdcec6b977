//! One event for a thousand readers, a hundred times a second: the server's cost for each delivery.
//!
//! | row | |
//! |---|---|
//! | millstream Hub | [`Hub`] on [`http::serve`](millstream::http::serve()), sent to from a task of the server |
//! | millstream Hub, other thread | the same, sent to from a thread without a runtime |
//! | axum Sse | `axum::serve` on tokio's listener, each stream with a receiver of one `tokio::sync::broadcast` |
//! | floor | a bare loop of `send` on blocking sockets, nothing else |
//!
//! All send the same bytes, an event of 100 bytes with its id, as chunks of HTTP/1.1 with `TCP_NODELAY`. Each server is a
//! current-thread runtime on a thread and a CPU of its own; the load is this program's main thread, and compares every byte.
//! The other thread's row includes the CPU time of that thread.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use axum::response::sse::{self, Sse};
use futures_util::stream;
use millstream::http::{Event, Hub};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{RecvFlags, recv};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};

use super::events::{EVENTS, HZ, floor, streams};
use crate::common::contest::{By, Case, Contender, Goal, Spent};
use crate::common::server::{Server, spawn};
use crate::common::suite::Suite;
use crate::common::{connect, cpu_of_others, listener};

/// As long as those the hub gives.
const ID: &str = "0123abcd-100000";

fn data() -> String {
    "x".repeat(100)
}

fn event() -> Vec<u8> {
    format!("data: {}\nid: {ID}\n\n", data()).into_bytes()
}

/// Calls `send` at each tick.
async fn tick(mut send: impl FnMut()) {
    let mut ticks = interval(Duration::from_secs(1) / HZ);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        send();
    }
}

fn send(hub: &Hub) {
    // Closed at the end of the turn.
    let _ = hub.send(Event::new().data(data()).id(ID));
}

async fn serve_hub(listener: TcpListener, hub: Hub) -> io::Result<()> {
    let listener = millstream::net::TcpListener::from_std(listener)?;
    let service = tower::service_fn(move |request| {
        let answer = hub.subscribe(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    millstream::http::serve(listener, service).await
}

async fn hub(listener: TcpListener) -> io::Result<()> {
    let hub = Hub::new();
    let sender = hub.clone();
    tokio::spawn(tick(move || send(&sender)));
    serve_hub(listener, hub).await
}

async fn axum_sse(listener: TcpListener) -> io::Result<()> {
    let (sender, _) = broadcast::channel::<String>(1000);
    let events = sender.clone();
    tokio::spawn(tick(move || drop(events.send(data()))));
    let answer = move || {
        let receiver = sender.subscribe();
        let events = stream::unfold(receiver, async |mut receiver| {
            loop {
                match receiver.recv().await {
                    Ok(data) => return Some((Ok::<_, Infallible>(sse::Event::default().data(data).id(ID)), receiver)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        async { Sse::new(events) }
    };
    let app = axum::Router::new().route("/events", axum::routing::get(answer));
    axum::serve(tokio::net::TcpListener::from_std(listener)?, app).await
}

/// The clients, all on this thread.
struct Readers {
    epoll: OwnedFd,
    readers: Vec<Reader>,
    event: Vec<u8>,
    buffer: Vec<u8>,
}

struct Reader {
    stream: TcpStream,
    place: Place,
    /// Bytes of events so far.
    seen: usize,
}

/// Where in the response a reader is. Nothing is taken apart that may come in pieces: sizes are summed digit by digit.
#[derive(Clone, Copy)]
enum Place {
    /// In the head, with so many bytes of its end seen.
    Head(usize),
    Size(usize),
    /// In the line end before the chunk.
    Start(usize),
    Chunk(usize),
    /// In the line end behind the chunk, with so many bytes to come.
    End(usize),
}

impl Readers {
    fn connect(addr: SocketAddr) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let connected = connect(addr, streams()).into_iter();
        let readers: Vec<Reader> = connected
            .map(|mut stream| {
                stream.write_all(b"GET /events HTTP/1.1\r\nhost: bench\r\n\r\n").unwrap();
                Reader { stream, place: Place::Head(0), seen: 0 }
            })
            .collect();
        for (index, reader) in readers.iter().enumerate() {
            epoll::add(&epoll, &reader.stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN).unwrap();
        }
        Self { epoll, readers, event: event(), buffer: vec![0; 64 << 10] }
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
                arrived += reader.take(&self.buffer[..n], &self.event);
            }
        }
        arrived
    }
}

impl Reader {
    /// Takes what has arrived; gives the number of events that are whole now.
    fn take(&mut self, mut bytes: &[u8], event: &[u8]) -> u64 {
        let before = self.seen / event.len();
        while let Some((&byte, rest)) = bytes.split_first() {
            let mut used = rest;
            self.place = match self.place {
                Place::Head(seen) => match b"\r\n\r\n"[seen] == byte {
                    true if seen == 3 => Place::Size(0),
                    true => Place::Head(seen + 1),
                    false => Place::Head(usize::from(byte == b'\r')),
                },
                Place::Size(size) if byte == b'\r' => Place::Start(size),
                Place::Size(size) => Place::Size(size * 16 + char::from(byte).to_digit(16).unwrap() as usize),
                Place::Start(size) => Place::Chunk(size),
                Place::Chunk(left) => {
                    let at = self.seen % event.len();
                    let len = bytes.len().min(left).min(event.len() - at);
                    assert!(bytes[..len] == event[at..at + len], "{}", bytes.escape_ascii());
                    self.seen += len;
                    used = &bytes[len..];
                    if left == len { Place::End(2) } else { Place::Chunk(left - len) }
                }
                Place::End(1) => Place::Size(0),
                Place::End(left) => Place::End(left - 1),
            };
            bytes = used;
        }
        (self.seen / event.len() - before) as u64
    }
}

/// Connects, reads some events that do not count, and then at least so many; what those took.
fn measure(addr: SocketAddr, events: u64) -> Spent {
    let mut readers = Readers::connect(addr);
    readers.read(events / 4);
    let (start, cpu) = (Instant::now(), cpu_of_others());
    let arrived = readers.read(events);
    let part = events as f64 / arrived as f64;
    let cpu = cpu_of_others().saturating_sub(cpu).mul_f64(part);
    Spent { cpu, wall: start.elapsed().mul_f64(part) }
}

fn measure_floor(events: u64) -> Spent {
    let (listener, streams) = (listener(), streams());
    let addr = listener.local_addr().unwrap();
    let event = event();
    let chunk = [format!("{:X}\r\n", event.len()).as_bytes(), &event, b"\r\n"].concat();
    let thread = spawn(move || floor(&listener, streams, &chunk));
    let used = measure(addr, events);
    thread.join().unwrap();
    used
}

/// The hub's sender is a thread of its own, which ends with the hub.
fn measure_from_outside(events: u64) -> Spent {
    let hub = Hub::new();
    let sender = hub.clone();
    let thread = spawn(move || {
        let mut tick = Instant::now();
        while sender.send(Event::new().data(data()).id(ID)).is_ok() {
            tick += Duration::from_secs(1) / HZ;
            std::thread::park_timeout(tick.saturating_duration_since(Instant::now()));
        }
    });
    let served = hub.clone();
    let server = Server::start(|listener| serve_hub(listener, served));
    let used = measure(server.addr, events);
    hub.close();
    thread.join().unwrap();
    used
}

pub(crate) fn run(suite: &mut Suite) {
    let title = format!("hub, one event, {} readers x {HZ} Hz", streams());
    let goal = |against, most| Goal { against, by: By::Cpu, most };
    let goals = [goal("axum Sse", 0.75), goal("floor, bare sends", 1.15)];
    let case = Case { operations: Some(EVENTS), goals: &goals, ..Case::new(&title, "CPU us/delivery", 1) };
    suite.run(&case, || {
        vec![
            Contender::new("millstream Hub", |events| measure(Server::start(hub).addr, events)),
            Contender::new("millstream Hub, other thread", measure_from_outside),
            Contender::new("axum Sse", |events| measure(Server::start(axum_sse).addr, events)),
            Contender::new("floor, bare sends", measure_floor),
        ]
    });
}
