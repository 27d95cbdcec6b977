//! Load for echo servers: one message in flight on each connection; the next one is sent when it returns.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Length of a message in bytes.
pub const LEN: usize = 64;

/// Connections driven by the calling thread.
#[derive(Debug)]
pub struct ClosedLoop {
    epoll: OwnedFd,
    connections: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// The message in flight: the number of the connection, then the number of the message repeated.
    message: [u8; LEN],
    number: u32,
    /// Number of its bytes received so far.
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

    /// Reads the received bytes. Returns whether the message is complete.
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

impl ClosedLoop {
    /// Takes connected streams with `TCP_NODELAY`.
    pub fn new(streams: impl IntoIterator<Item = TcpStream>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for (index, stream) in streams.into_iter().enumerate() {
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            let mut message = [0; LEN];
            message[..4].copy_from_slice(&(index as u32).to_le_bytes());
            connections.push(Connection { stream, message, number: 0, back: LEN });
        }
        Ok(Self { epoll, connections })
    }

    /// Sends messages while `more` returns true for the number of messages sent, and waits until all are back; compares
    /// every byte. Returns their number.
    pub fn run(&mut self, mut more: impl FnMut(u64) -> bool) -> io::Result<u64> {
        let (mut sent, mut back) = (0, 0);
        for connection in &mut self.connections {
            if more(sent) {
                connection.send()?;
                sent += 1;
            }
        }
        let mut events = Vec::with_capacity(self.connections.len());
        while back < sent {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            for event in &events {
                let connection = &mut self.connections[event.data.u64() as usize];
                if connection.receive()? {
                    back += 1;
                    if more(sent) {
                        connection.send()?;
                        sent += 1;
                    }
                }
            }
        }
        Ok(back)
    }
}
