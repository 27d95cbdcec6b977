//! Echo of small messages: the load, and what it costs the server.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::child::Server;
use crate::options::Options;
use crate::socket;
use crate::strace::Calls;
use crate::table::{Bar, Row, Section, Series};
use crate::ways::{Job, Way};

pub(crate) const CONNECTIONS: [usize; 4] = [1, 8, 64, 512];

const LEN: usize = 64;

/// What millstream's best may cost against tokio, for each number of connections.
const AGAINST_TOKIO: [f64; 4] = [1.00, 0.90, 0.88, 0.88];

/// Connections with one message in flight on each, driven by this thread.
struct Load {
    epoll: OwnedFd,
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    /// The message in flight: the connection's number and its own, over and over.
    message: [u8; LEN],
    number: u32,
    /// Bytes of it that have come back.
    back: usize,
}

impl Connection {
    fn send(&mut self) -> io::Result<()> {
        self.number = self.number.wrapping_add(1);
        self.message[4..].chunks_exact_mut(4).for_each(|chunk| chunk.copy_from_slice(&self.number.to_le_bytes()));
        self.back = 0;
        match send(&self.stream, &self.message, SendFlags::NOSIGNAL)? {
            LEN => Ok(()),
            n => Err(io::Error::other(format!("an empty socket took only {n} bytes"))),
        }
    }

    /// Takes what has arrived; whether that completes the message.
    fn receive(&mut self) -> io::Result<bool> {
        let mut buffer = [0; LEN];
        let (n, _) = recv(&self.stream, &mut buffer[self.back..], RecvFlags::DONTWAIT)?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed a connection"));
        }
        let range = self.back..self.back + n;
        if buffer[range.clone()] != self.message[range] {
            return Err(io::Error::other("the server sent back something else"));
        }
        self.back += n;
        Ok(self.back == LEN)
    }
}

impl Load {
    fn connect(addr: SocketAddr, connections: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut load = Self { epoll, connections: Vec::with_capacity(connections) };
        for index in 0..connections {
            let stream = socket::connect(addr)?;
            epoll::add(&load.epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            let mut message = [0; LEN];
            message[..4].copy_from_slice(&(index as u32).to_le_bytes());
            load.connections.push(Connection { stream, message, number: 0, back: LEN });
        }
        Ok(load)
    }

    /// Sends a message on every connection and another whenever one has come back, for this long; then waits for those
    /// that are on their way. Gives the messages that came back and the time that took.
    fn run(&mut self, time: Duration) -> io::Result<(u64, Duration)> {
        let start = Instant::now();
        self.connections.iter_mut().try_for_each(Connection::send)?;
        let (mut flying, mut done) = (self.connections.len(), 0);
        let mut events = Vec::with_capacity(self.connections.len());
        while flying > 0 {
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None)?;
            let goes_on = start.elapsed() < time;
            for event in &events {
                let connection = &mut self.connections[event.data.u64() as usize];
                if connection.receive()? {
                    done += 1;
                    match goes_on {
                        true => connection.send()?,
                        false => flying -= 1,
                    }
                }
            }
        }
        Ok((done, start.elapsed()))
    }
}

/// One round of one contender.
fn round(way: &Way, connections: usize, time: Duration) -> io::Result<[f64; 2]> {
    let mut server = Server::start(way, &[])?;
    let mut load = Load::connect(server.addr(), connections)?;
    load.run(time / 5)?;
    let before = server.cpu()?;
    let (messages, wall) = load.run(time)?;
    let cpu = server.cpu()? - before;
    Ok([cpu.as_secs_f64() * 1e6 / messages as f64, messages as f64 / wall.as_secs_f64()])
}

/// System calls for each message, where they can be traced.
fn calls(way: &Way, connections: usize, time: Duration) -> io::Result<Option<f64>> {
    let server = Server::start(way, &[])?;
    let mut load = Load::connect(server.addr(), connections)?;
    load.run(time / 5)?;
    let Some(calls) = Calls::of(server.pid())? else { return Ok(None) };
    let (messages, _) = load.run(time)?;
    Ok(calls.stop()?.map(|calls| calls as f64 / messages as f64))
}

pub(crate) fn measure(options: &Options, connections: usize) -> io::Result<Section> {
    let ways = Way::of(Job::Echo);
    let mut series: Vec<Series<2>> = ways.iter().map(|_| Series::default()).collect();
    for _ in 0..options.rounds {
        for (way, series) in ways.iter().zip(&mut series) {
            series.push(round(way, connections, options.echo_time()).map_err(|e| way.problem(&e))?);
        }
    }
    let rows = ways.iter().zip(&series).map(|(way, series)| {
        let calls = calls(way, connections, options.echo_time() / 2).map_err(|e| way.problem(&e))?;
        let [cpu, rate] = series.medians();
        let calls = calls.map_or("-".to_owned(), |calls| format!("{calls:.2}"));
        Ok(Row { way, cpu, least: series.least()[0], notes: vec![calls, format!("{:.0}", rate / 1e3)] })
    });
    Ok(Section {
        title: format!("echo, {LEN} B, {connections} connections"),
        unit: "us/message",
        columns: &["calls/message", "1000/s"],
        rows: rows.collect::<io::Result<_>>()?,
    })
}

/// What is asked of millstream.
pub(crate) fn bars(sections: &[Section]) -> Vec<Bar> {
    let echoes: Vec<&Section> = sections.iter().filter(|section| section.title.starts_with("echo")).collect();
    let mut bars = Vec::new();
    for (index, section) in echoes.iter().enumerate() {
        let ours = section.best(Way::is_ours);
        bars.push(Bar::new(&section.title, "tokio", ours / section.rows[0].cpu, AGAINST_TOKIO[index]));
        if CONNECTIONS[index] == 64 {
            bars.push(Bar::new(&section.title, "the best peer", ours / section.best(|way| !way.is_ours()), 1.0));
        }
    }
    bars
}
