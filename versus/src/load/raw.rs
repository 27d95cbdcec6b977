//! HTTP/1.1 without TLS on bare sockets, by one thread and epoll. Bodies of known length are discarded in the kernel.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use measuring::latencies::Latencies;
use measuring::response::Response;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;

use super::arrivals::Arrivals;
use super::events::EventScanner;
use super::{Gauge, Job, Task};

/// How long a phase may go unnoticed.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Connections that are opened at once; more could overflow a server's queue, and wait for retransmissions.
const BATCH: usize = 1024;

/// Requests of an open loop that wait for their connection at most. Further ones are dropped, and count as offered.
const QUEUE_MAX: usize = 10_000;

/// What epoll reports for the timer of an open loop.
const TIMER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// Bytes sent of the request's head and body.
    sent: usize,
    waits_for_room: bool,
    /// Whether a response is outstanding.
    busy: bool,
    /// When the request was sent, or was due.
    started: Instant,
    /// Times at which requests were due that wait for this connection.
    queue: VecDeque<Instant>,
    response: Response,
    answered: bool,
    event: EventScanner,
}

pub(super) fn run(job: &Job, gauge: &Gauge) -> io::Result<Latencies> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let arrivals = match job.task {
        Task::Open { rate, seed } => {
            let arrivals = Arrivals::new(rate, seed)?;
            // Edges: setting the timer anew clears what has not been read.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &arrivals, epoll::EventData::new_u64(TIMER), flags)?;
            Some(arrivals)
        }
        _ => None,
    };
    let (latencies, buffer) = (Latencies::default(), vec![0; 256 << 10]);
    let mut load = Load { job, gauge, epoll, arrivals, latencies, buffer, answered: 0 };
    let mut connections = Vec::new();
    let mut ready = Vec::with_capacity(1024);
    while !gauge.is_stopped() {
        if load.answered == connections.len() {
            load.connect(&mut connections)?;
        }
        load.offer(&mut connections)?;
        ready.clear();
        match epoll::wait(&load.epoll, spare_capacity(&mut ready), Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in ready.iter().filter(|event| event.data.u64() != TIMER) {
            let index = event.data.u64() as usize;
            let connection = &mut connections[index];
            // A copy: the structure is packed.
            let flags = event.flags;
            if flags.contains(epoll::EventFlags::OUT) {
                load.send(connection, index)?;
            }
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                let before = connection.answered;
                load.receive(connection, index)?;
                load.answered += usize::from(connection.answered != before);
            }
        }
    }
    Ok(load.latencies)
}

struct Load<'a> {
    job: &'a Job,
    gauge: &'a Gauge,
    epoll: OwnedFd,
    /// Of an open loop.
    arrivals: Option<Arrivals>,
    latencies: Latencies,
    buffer: Vec<u8>,
    /// Connections that have got a response.
    answered: usize,
}

impl Load<'_> {
    /// Opens more connections, up to [`BATCH`], and sends their first requests.
    fn connect(&mut self, connections: &mut Vec<Connection>) -> io::Result<()> {
        let Job { first, ref path, .. } = *self.job;
        let end = (self.job.connections as usize).min(connections.len() + BATCH);
        for index in connections.len()..end {
            let started = Instant::now();
            let request = match self.job.task.body() {
                [] => format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
                body => {
                    let name = first as usize + index;
                    format!("PUT {path}{name} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len())
                }
            };
            let mut connection = Connection {
                stream: self.dial(index)?,
                request: request.into_bytes(),
                sent: 0,
                waits_for_room: false,
                busy: false,
                started,
                queue: VecDeque::new(),
                response: Response::default(),
                answered: false,
                event: EventScanner::default(),
            };
            self.ask(&mut connection, index, started)?;
            connections.push(connection);
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.add(u64::from(first) + index as u64, started);
            }
        }
        Ok(())
    }

    fn dial(&self, index: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.job.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // Thousands of connections that end at once would keep their ports for a minute.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        Ok(stream)
    }

    /// Sends the requests of an open loop that are due. Those whose connection is busy wait for it.
    fn offer(&mut self, connections: &mut [Connection]) -> io::Result<()> {
        while let Some((due, index)) = self.arrivals.as_mut().and_then(|arrivals| arrivals.pop(Instant::now())) {
            self.gauge.offer();
            let connection = &mut connections[index];
            if !connection.busy {
                self.ask(connection, index, due)?;
            } else if connection.queue.len() < QUEUE_MAX {
                connection.queue.push_back(due);
            }
        }
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.arm()?;
        }
        Ok(())
    }

    /// Begins a request, whose latency counts from `started`.
    fn ask(&self, connection: &mut Connection, index: usize, started: Instant) -> io::Result<()> {
        connection.response = Response::default();
        (connection.sent, connection.busy, connection.started) = (0, true, started);
        self.send(connection, index)
    }

    /// Sends what the socket takes.
    fn send(&self, connection: &mut Connection, index: usize) -> io::Result<()> {
        let head = connection.request.len();
        let body = self.job.task.body();
        let full = loop {
            let rest = match connection.sent.checked_sub(head) {
                None => &connection.request[connection.sent..],
                Some(at) => &body[at..],
            };
            if rest.is_empty() {
                break false;
            }
            // The head leaves with the first bytes of the body.
            let more = if connection.sent < head && !body.is_empty() { SendFlags::MORE } else { SendFlags::empty() };
            match send(&connection.stream, rest, SendFlags::NOSIGNAL | more) {
                Ok(n) => {
                    if connection.sent >= head {
                        self.gauge.add_bytes(n);
                    }
                    connection.sent += n;
                }
                Err(Errno::AGAIN) => break true,
                Err(e) => return Err(e.into()),
            }
        };
        if std::mem::replace(&mut connection.waits_for_room, full) != full {
            let flags = if full { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, &connection.stream, epoll::EventData::new_u64(index as u64), flags)?;
        }
        Ok(())
    }

    /// Receives once. Does what follows the end of a response.
    fn receive(&mut self, connection: &mut Connection, index: usize) -> io::Result<()> {
        let task = self.job.task;
        let left = usize::try_from(connection.response.body_left()).unwrap_or(usize::MAX);
        // tcp(7): MSG_TRUNC discards bytes. Only those that are certain to be of this body.
        let skips = left > 0 && task != Task::Events;
        let (flags, len) = match skips {
            true => (RecvFlags::DONTWAIT | RecvFlags::TRUNC, left.min(self.buffer.len())),
            false => (RecvFlags::DONTWAIT, self.buffer.len()),
        };
        let n = match recv(&connection.stream, &mut self.buffer[..len], flags) {
            Ok((_, 0)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed a connection")),
            Ok((_, n)) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let gauge = self.gauge;
        let downloads = task.body().is_empty();
        if skips {
            connection.response.skip(n as u64);
            if downloads {
                gauge.add_bytes(n);
            }
        } else {
            let (latencies, answered, scanner) = (&mut self.latencies, &mut connection.answered, &mut connection.event);
            let used = connection.response.take(&self.buffer[..n], |body| {
                if downloads {
                    gauge.add_bytes(body.len());
                }
                if task == Task::Events {
                    scanner.scan(body, |latency| gauge.complete(latency, latencies, answered));
                }
            })?;
            if used < n {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent more than its response"));
            }
        }
        if connection.response.is_done() { self.complete(connection, index) } else { Ok(()) }
    }

    /// Counts a response, and does what follows it.
    fn complete(&mut self, connection: &mut Connection, index: usize) -> io::Result<()> {
        if self.job.task == Task::Events {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an endless stream of events has ended"));
        }
        self.gauge.complete(connection.started.elapsed(), &mut self.latencies, &mut connection.answered);
        connection.busy = false;
        match self.job.task {
            Task::Once => Ok(()),
            Task::Open { .. } => match connection.queue.pop_front() {
                Some(due) => self.ask(connection, index, due),
                None => Ok(()),
            },
            Task::Churn => {
                let started = Instant::now();
                // The old one is closed when the new one has its request, so that its end is no part of a latency.
                let _old = std::mem::replace(&mut connection.stream, self.dial(index)?);
                self.ask(connection, index, started)
            }
            _ => self.ask(connection, index, Instant::now()),
        }
    }
}
