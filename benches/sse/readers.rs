//! Load for event streams: a thousand readers that compare every byte, and the minimum work of a server for them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use measuring::response::Response;
use millstream::metrics::Snapshot;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{RecvFlags, recv};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection};

use crate::common::contest::{Contender, Run, Spent};
use crate::common::options::options;
use crate::common::server::spawn;
use crate::common::{connect, cpu_of_others, listener};

/// How many streams there are, and how many events a second each of them has.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    streams: usize,
    pub(crate) hz: u32,
}

impl Pace {
    pub(crate) const fn new(streams: usize, hz: u32) -> Self {
        Self { streams, hz }
    }

    pub(crate) fn streams(self) -> usize {
        if options().test { 8 } else { self.streams }
    }

    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(1) / self.hz
    }

    /// Events of a turn: half a second of all streams.
    pub(crate) fn events(self) -> u64 {
        self.streams as u64 * u64::from(self.hz) / 2
    }
}

/// Longest time for readers to read what was sent while they connected.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The bytes that readers expect.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// This event, again and again.
    Same(&'a [u8]),
    /// Events of this length that differ.
    Plain(usize),
    /// The same in gzip form.
    Gzip(usize),
}

struct Readers<'a> {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
    readers: Vec<Reader>,
    content: Content<'a>,
    buffer: Vec<u8>,
}

struct Reader {
    stream: TcpStream,
    tls: Option<ClientConnection>,
    response: Response,
    seen: usize,
    inflate: Option<flate2::Decompress>,
}

impl Content<'_> {
    fn event_len(self) -> usize {
        match self {
            Self::Same(event) => event.len(),
            Self::Plain(len) | Self::Gzip(len) => len,
        }
    }
}

impl<'a> Readers<'a> {
    fn connect(addr: SocketAddr, streams: usize, content: Content<'a>, tls: Option<&Arc<ClientConfig>>) -> Self {
        let accept = if let Content::Gzip(_) = content { "accept-encoding: gzip\r\n" } else { "" };
        let request = format!("GET /events HTTP/1.1\r\nhost: bench\r\n{accept}\r\n");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let connected = connect(addr, streams).into_iter();
        let readers: Vec<Reader> = connected
            .map(|mut stream| {
                let tls = tls.map(|config| {
                    let mut tls = ClientConnection::new(Arc::clone(config), "bench".try_into().unwrap()).unwrap();
                    rustls::Stream::new(&mut tls, &mut stream).write_all(request.as_bytes()).unwrap();
                    tls
                });
                if tls.is_none() {
                    stream.write_all(request.as_bytes()).unwrap();
                }
                // The readers of gzip have the window that its encoders have.
                let inflate = matches!(content, Content::Gzip(_)).then(|| flate2::Decompress::new_gzip(15));
                Reader { stream, tls, response: Response::default(), seen: 0, inflate }
            })
            .collect();
        for (index, reader) in readers.iter().enumerate() {
            epoll::add(&epoll, &reader.stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN).unwrap();
        }
        Self { epoll, ready: Vec::with_capacity(readers.len()), readers, content, buffer: vec![0; 64 << 10] }
    }

    /// Reads and compares until at least this many more events have arrived. Returns their number.
    fn read(&mut self, events: u64) -> u64 {
        let mut arrived = 0;
        while arrived < events {
            arrived += self.read_ready(None).unwrap_or(0);
        }
        arrived
    }

    /// Reads until no bytes wait, so that what is read afterwards is sent afterwards: while the readers connected, one
    /// by one, the server sent to those that were there.
    fn catch_up(&mut self) {
        let (start, none) = (Instant::now(), Timespec { tv_sec: 0, tv_nsec: 0 });
        while self.read_ready(Some(&none)).is_some() {
            if start.elapsed() > CATCH_UP {
                eprintln!("the readers never catch up: the figures miss the cost of events sent before");
                break;
            }
        }
    }

    /// Reads once from each reader that has bytes. Returns the number of events; `None`: none had any up to `timeout`.
    fn read_ready(&mut self, timeout: Option<&Timespec>) -> Option<u64> {
        self.ready.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.ready), timeout).unwrap();
        let mut arrived = 0;
        for event in &self.ready {
            let reader = &mut self.readers[event.data.u64() as usize];
            let (n, _) = recv(&reader.stream, &mut self.buffer[..], RecvFlags::DONTWAIT).unwrap();
            assert!(n > 0, "the server closed an endless stream");
            arrived += match reader.decrypted(&self.buffer[..n]) {
                Some(bytes) => reader.take(&bytes, self.content),
                None => reader.take(&self.buffer[..n], self.content),
            };
        }
        (!self.ready.is_empty()).then_some(arrived)
    }
}

impl Reader {
    /// Returns the contents of records, over TLS.
    fn decrypted(&mut self, mut records: &[u8]) -> Option<Vec<u8>> {
        let tls = self.tls.as_mut()?;
        let mut bytes = Vec::new();
        while !records.is_empty() {
            tls.read_tls(&mut records).unwrap();
            tls.process_new_packets().unwrap();
            match tls.reader().read_to_end(&mut bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                ended => panic!("the server closed an endless stream: {ended:?}"),
            }
        }
        Some(bytes)
    }

    /// Parses received bytes. Returns the number of events completed by them.
    fn take(&mut self, bytes: &[u8], content: Content<'_>) -> u64 {
        let Self { response, seen, inflate, .. } = self;
        let before = *seen / content.event_len();
        let data = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                bytes = &bytes[data(bytes, content, seen, inflate.as_mut())..];
            }
        };
        let used = response.take(bytes, data).unwrap();
        assert!(used == bytes.len(), "an endless stream has ended");
        (*seen / content.event_len() - before) as u64
    }
}

/// Compares data of a response, of which some was seen. Returns how much was taken.
fn data(bytes: &[u8], content: Content<'_>, seen: &mut usize, inflate: Option<&mut flate2::Decompress>) -> usize {
    match (content, inflate) {
        (Content::Same(event), _) => {
            let at = *seen % event.len();
            let len = bytes.len().min(event.len() - at);
            assert!(bytes[..len] == event[at..at + len], "{}", bytes.escape_ascii());
            *seen += len;
            len
        }
        (Content::Gzip(len), Some(inflate)) => {
            let (before, mut text) = (inflate.total_in(), [0; 4096]);
            let made = inflate.total_out();
            inflate.decompress(bytes, &mut text, flate2::FlushDecompress::None).expect("valid deflate blocks");
            let text = &text[..(inflate.total_out() - made) as usize];
            let taken = (inflate.total_in() - before) as usize;
            check(text, *seen, len);
            *seen += text.len();
            taken
        }
        (Content::Plain(len) | Content::Gzip(len), _) => {
            check(bytes, *seen, len);
            *seen += bytes.len();
            bytes.len()
        }
    }
}

/// Checks that every event of this length begins and ends as an event, in a text from an offset on.
fn check(text: &[u8], from: usize, len: usize) {
    for (place, expected) in [(0, b'd'), (5, b' '), (len - 2, b'\n'), (len - 1, b'\n')] {
        let first = (place + len - from % len) % len;
        assert!(text.iter().skip(first).step_by(len).all(|byte| *byte == expected), "{}", text.escape_ascii());
    }
}

/// Connects readers that read nothing.
pub(crate) fn connect_all<'a>(
    addr: SocketAddr,
    readers: usize,
    tls: Option<&Arc<ClientConfig>>,
) -> impl Sized + use<'a> {
    Readers::connect(addr, readers, Content::Plain(1), tls)
}

/// Measures readers of the same event, as [`measure_content`].
pub(crate) fn measure(addr: SocketAddr, pace: Pace, event: &[u8], events: u64) -> (Spent, Snapshot) {
    measure_content(addr, pace, Content::Same(event), events)
}

/// As [`measure`], over TLS.
pub(crate) fn measure_tls(
    addr: SocketAddr,
    pace: Pace,
    event: &[u8],
    tls: &Arc<ClientConfig>,
    events: u64,
) -> (Spent, Snapshot) {
    measured(Readers::connect(addr, pace.streams(), Content::Same(event), Some(tls)), events)
}

/// Connects, reads without counting until no events wait, and then at least `events`. Returns the time of those, and the
/// counters of our streams.
pub(crate) fn measure_content(addr: SocketAddr, pace: Pace, content: Content<'_>, events: u64) -> (Spent, Snapshot) {
    measured(Readers::connect(addr, pace.streams(), content, None), events)
}

fn measured(mut readers: Readers<'_>, events: u64) -> (Spent, Snapshot) {
    readers.read(events / 4);
    readers.catch_up();
    let (start, cpu, calls) = (Instant::now(), cpu_of_others(), Snapshot::now());
    let arrived = readers.read(events);
    let calls = Snapshot::now().since(&calls);
    let part = events as f64 / arrived as f64;
    let cpu = cpu_of_others().saturating_sub(cpu).mul_f64(part);
    (Spent { cpu, wall: start.elapsed().mul_f64(part) }, calls)
}

/// Our server, with the calls of its last turn as a note.
struct Counted<F> {
    measure: F,
    calls: String,
}

impl<F: FnMut(u64) -> (Spent, Snapshot)> Run for Counted<F> {
    fn run(&mut self, events: u64) -> Spent {
        let (spent, calls) = (self.measure)(events);
        self.calls = format!("calls/event: {:.3} that send", calls.writes as f64 / events as f64);
        spent
    }

    fn note(&mut self) -> String {
        std::mem::take(&mut self.calls)
    }
}

/// Returns a contender whose counters are those of our streams.
pub(crate) fn counted<'a>(name: &'static str, measure: impl FnMut(u64) -> (Spent, Snapshot) + 'a) -> Contender<'a> {
    Contender { name, run: Box::new(Counted { measure, calls: String::new() }) }
}

/// Like [`measure`], for a bare loop of `send` on blocking sockets.
pub(crate) fn floor(pace: Pace, event: &[u8], events: u64) -> Spent {
    floor_with(pace, event, |stream| stream, |addr| measure(addr, pace, event, events).0)
}

/// As [`floor`], with streams that `wrap` makes of the sockets.
pub(crate) fn floor_with<S: Read + Write>(
    pace: Pace,
    event: &[u8],
    wrap: impl Fn(TcpStream) -> S + Send + 'static,
    measure: impl FnOnce(SocketAddr) -> Spent,
) -> Spent {
    let listener = listener();
    let addr = listener.local_addr().unwrap();
    let chunk = [format!("{:X}\r\n", event.len()).as_bytes(), event, b"\r\n"].concat();
    let thread = spawn(move || send_all(&listener, pace, &chunk, wrap));
    let spent = measure(addr);
    thread.join().unwrap();
    spent
}

/// Accepts the connections, then sends one frame to each at each tick, until one disconnects.
fn send_all<S: Read + Write>(listener: &TcpListener, pace: Pace, frame: &[u8], wrap: impl Fn(TcpStream) -> S) {
    let mut connections: Vec<S> = (0..pace.streams())
        .map(|_| {
            let mut stream = wrap(listener.accept().unwrap().0);
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
        tick += pace.period();
        clock_nanosleep_absolute(ClockId::Monotonic, &tick.try_into().unwrap()).unwrap();
    }
}
