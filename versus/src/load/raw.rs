//! HTTP/1.1 without TLS on bare sockets, by one thread and epoll. Bodies of known length are discarded in the kernel.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use measuring::latencies::Latencies;
use measuring::response::Response;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;

use super::{Gauge, Job};

/// How long a phase may go unnoticed.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Connections that are opened at once; more could overflow a server's queue, and wait for retransmissions.
const BATCH: usize = 1024;

struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// Bytes sent of the request's head and body.
    sent: usize,
    waits_for_room: bool,
    started: Instant,
    response: Response,
    answered: bool,
    event: EventScanner,
}

pub(super) fn run(job: &Job, gauge: &Gauge) -> io::Result<Latencies> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut load = Load { job, gauge, epoll, latencies: Latencies::default(), buffer: vec![0; 256 << 10], answered: 0 };
    let mut connections = Vec::new();
    let mut ready = Vec::with_capacity(1024);
    while !gauge.is_stopped() {
        if load.answered == connections.len() {
            load.connect(&mut connections)?;
        }
        ready.clear();
        match epoll::wait(&load.epoll, spare_capacity(&mut ready), Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &ready {
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
    latencies: Latencies,
    buffer: Vec<u8>,
    /// Connections that have got a response.
    answered: usize,
}

impl Load<'_> {
    /// Opens more connections, up to [`BATCH`], and sends their first requests.
    fn connect(&self, connections: &mut Vec<Connection>) -> io::Result<()> {
        let Job { first, path, upload, .. } = self.job;
        let end = (self.job.connections as usize).min(connections.len() + BATCH);
        for index in connections.len()..end {
            let stream = TcpStream::connect(self.job.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            // Thousands of connections that end at once would keep their ports for a minute.
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            let request = match upload {
                Some(body) => {
                    let name = *first as usize + index;
                    format!("PUT {path}{name} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len())
                }
                None => format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            };
            let mut connection = Connection {
                stream,
                request: request.into_bytes(),
                sent: 0,
                waits_for_room: false,
                started: Instant::now(),
                response: Response::default(),
                answered: false,
                event: EventScanner::default(),
            };
            self.send(&mut connection, index)?;
            connections.push(connection);
        }
        Ok(())
    }

    /// Sends what the socket takes.
    fn send(&self, connection: &mut Connection, index: usize) -> io::Result<()> {
        let head = connection.request.len();
        let body = self.job.upload.unwrap_or_default();
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

    /// Receives once. Sends the next request at the end of a response.
    fn receive(&mut self, connection: &mut Connection, index: usize) -> io::Result<()> {
        let left = usize::try_from(connection.response.body_left()).unwrap_or(usize::MAX);
        // tcp(7): MSG_TRUNC discards bytes. Only those that are certain to be of this body.
        let skips = left > 0 && !self.job.events;
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
        let (job, gauge) = (self.job, self.gauge);
        let downloads = job.upload.is_none();
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
                if job.events {
                    scanner.scan(body, |latency| gauge.complete(latency, latencies, answered));
                }
            })?;
            if used < n {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent more than its response"));
            }
        }
        if connection.response.is_done() {
            if job.events {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an endless stream of events has ended"));
            }
            gauge.complete(connection.started.elapsed(), &mut self.latencies, &mut connection.answered);
            connection.response = Response::default();
            connection.sent = 0;
            connection.started = Instant::now();
            self.send(connection, index)?;
        }
        Ok(())
    }
}

/// Finds events and the times in them: `data: NANOSECONDS xxx`.
#[derive(Debug, Default)]
struct EventScanner {
    line: Vec<u8>,
}

impl EventScanner {
    fn scan(&mut self, bytes: &[u8], mut found: impl FnMut(Duration)) {
        for &byte in bytes {
            if byte != b'\n' {
                // The time stands in front.
                if self.line.len() < 40 {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::str::from_utf8(&self.line).unwrap_or_default();
            let time = line.strip_prefix("data:").and_then(|data| data.split_ascii_whitespace().next());
            if let Some(Ok(nanos)) = time.map(str::parse) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                found(now.saturating_sub(Duration::from_nanos(nanos)));
            }
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_they_are_cut() {
        let stream = format!("data: 123456789 {}\nid: 1\n\n:\n\ndata: 1 x\n\nretry: 5\n", "x".repeat(90));
        for cut in 0..=stream.len() {
            let (mut scanner, mut events) = (EventScanner::default(), 0);
            for piece in [&stream[..cut], &stream[cut..]] {
                scanner.scan(piece.as_bytes(), |latency| {
                    assert!(latency > Duration::from_secs(1_000_000_000));
                    events += 1;
                });
            }
            assert_eq!(events, 2, "cut at {cut}");
        }
    }
}
