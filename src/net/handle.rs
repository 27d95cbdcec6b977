//! A stream seen from outside, by whoever watches over many of them.

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use super::egress::Egress;
use super::path::IoPath;
use super::profile::Profile;
use super::stats::{KernelStats, Pulse, Record, StreamStats};
use crate::sys::{socket, tcp};

/// A stream seen from outside: its numbers, and what can be done to it without owning it. Cheap to clone; holds neither the
/// stream nor its socket open.
#[derive(Clone)]
pub struct Handle {
    id: u64,
    egress: Weak<Egress>,
}

/// What is told the numbers with which a stream was closed; from [`Handle::closing`].
#[derive(Clone, Debug)]
pub struct Closing(Arc<Record>);

impl Closing {
    /// The last numbers, those of the kernel included; `None` while the stream lives. A stream that was dropped lives for as
    /// long as it has something to send. What [`TcpListenerBuilder::on_close`] is given is the same.
    ///
    /// [`TcpListenerBuilder::on_close`]: super::TcpListenerBuilder::on_close
    pub fn numbers(&self) -> Option<StreamStats> {
        self.0.get()
    }
}

/// How a peer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It sends nothing more. It may still read.
    Half,
    /// The connection is over.
    Gone,
}

impl Handle {
    pub(super) fn new(egress: &Arc<Egress>) -> Self {
        Self { id: egress.id(), egress: Arc::downgrade(egress) }
    }

    /// The number of the stream among all streams of this process, from 1 on. None has that of another, also once it is closed.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The numbers of now, without a system call; `None` once the stream is closed.
    pub fn numbers(&self) -> Option<StreamStats> {
        self.egress.upgrade().map(|egress| egress.numbers())
    }

    /// The little of the numbers that is looked at often; `None` once the stream is closed.
    pub(crate) fn pulse(&self) -> Option<Pulse> {
        self.egress.upgrade().map(|egress| egress.pulse())
    }

    /// Ready when the peer has ended its side and everything it has sent was read. Only for the task that reads the stream,
    /// while it does not read. `look`: a system call may be made to find out.
    pub(crate) fn poll_leaving(&self, cx: &mut Context<'_>, look: bool) -> Poll<Leaving> {
        match self.egress.upgrade() {
            Some(egress) => egress.poll_leaving(cx, look),
            None => Poll::Ready(Leaving::Gone),
        }
    }

    /// What the kernel says of the stream now, by two system calls; `None` once the stream is closed.
    pub fn kernel(&self) -> Option<KernelStats> {
        self.egress.upgrade().map(|egress| KernelStats::of(egress.as_fd()))
    }

    /// Has the stream keep the numbers with which it will be closed, which costs two system calls then; `None` once it is
    /// closed.
    pub fn closing(&self) -> Option<Closing> {
        self.egress.upgrade().map(|egress| Closing(egress.record()))
    }

    /// Which ways the stream's writes may take; `None` once the stream is closed.
    pub fn path(&self) -> Option<IoPath> {
        self.egress.upgrade().map(|egress| egress.path())
    }

    /// [`path`](Self::path), or `epoll` where that asks for a ring and this thread has none; `None` once the stream is closed.
    pub(crate) fn effective_path(&self) -> Option<IoPath> {
        self.egress.upgrade().map(|egress| egress.effective_path())
    }

    /// Changes which ways the stream's writes may take, from its next write or flush on. No byte is lost, sent twice or
    /// overtaken, whatever is under way. Nothing happens once the stream is closed.
    pub fn set_path(&self, path: IoPath) {
        if let Some(egress) = self.egress.upgrade() {
            egress.set_path(path);
        }
    }

    /// How much the kernel holds for the stream; `None` once it is closed.
    pub fn profile(&self) -> Option<Profile> {
        self.egress.upgrade().map(|egress| egress.profile())
    }

    /// Changes how much the kernel holds for the stream, at once. Nothing happens once the stream is closed.
    pub fn set_profile(&self, profile: Profile) {
        if let Some(egress) = self.egress.upgrade() {
            egress.set_profile(profile);
        }
    }

    /// The congestion control of a TCP connection, `cubic` for instance (`TCP_CONGESTION`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)); `None` for others, and once the stream is closed.
    pub fn congestion(&self) -> Option<String> {
        tcp::congestion(self.egress.upgrade()?.as_fd()).ok()
    }

    /// Chooses the congestion control by its name, for what is sent from now on.
    ///
    /// # Errors
    ///
    /// If the kernel has none of that name, this process may not use it, or the stream is no TCP connection: the error lists
    /// what the kernel offers. `ErrorKind::NotConnected` once the stream is closed.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        let egress = self.egress.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        tcp::set_congestion(egress.as_fd(), name)
    }

    /// Bytes that the kernel took from us and the peer has not acknowledged; `None` once the stream is closed. Of a Unix
    /// socket, the memory of what the peer has not read.
    pub(crate) fn unacknowledged(&self) -> Option<usize> {
        self.egress.upgrade().and_then(|egress| tcp::unconfirmed(egress.as_fd()))
    }

    /// Bytes that have arrived and were not taken from the kernel; `None` once the stream is closed.
    pub(crate) fn unread(&self) -> Option<usize> {
        self.egress.upgrade().and_then(|egress| tcp::unread(egress.as_fd()))
    }

    /// Whether the stream is a TCP connection.
    pub(crate) fn is_tcp(&self) -> bool {
        self.egress.upgrade().is_some_and(|egress| tcp::congestion(egress.as_fd()).is_ok())
    }

    /// Has the kernel send no faster than so many bytes per second from now on, or as fast as may be
    /// (`SO_MAX_PACING_RATE`, [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)).
    ///
    /// # Errors
    ///
    /// `ErrorKind::Unsupported` if the stream is no TCP connection; `ErrorKind::NotConnected` once it is closed.
    pub fn set_pace(&self, bytes_per_second: Option<NonZeroU64>) -> io::Result<()> {
        let egress = self.egress.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        tcp::set_pacing(egress.as_fd(), bytes_per_second)
    }

    /// Ends the connection at once, by a reset where the family has one: what waits to be sent is lost, and the peer cannot
    /// take what it got for the whole. Tasks that wait for the stream are woken and see an error or the end.
    pub fn reset(&self) {
        if let Some(egress) = self.egress.upgrade() {
            socket::reset(egress.as_fd());
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.numbers() {
            Some(numbers) => f.debug_tuple("Handle").field(&numbers).finish(),
            None => write!(f, "Handle({}, closed)", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::net::{Receive, TcpListener, TcpStream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_handle_counts_both_ways_and_resets() {
        for receive in [Receive::Ready, Receive::Multishot] {
            let listener = TcpListener::builder().receive(receive).bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let handle = stream.handle();
            client.write_all(b"hello").await.unwrap();
            let mut got = [0; 5];
            stream.read_exact(&mut got).await.unwrap();
            stream.write_all(b"an answer").await.unwrap();
            stream.flushed().await.unwrap();
            let numbers = handle.numbers().unwrap();
            assert_eq!((numbers.received, numbers.sent, numbers.writes, numbers.queued), (5, 9, 1, 0));
            assert!(!numbers.blocked);
            handle.reset();
            client.read_exact(&mut [0; 9]).await.unwrap();
            assert!(client.read(&mut got).await.is_err(), "a reset is no end");
            assert!(matches!(stream.read(&mut got).await, Ok(0) | Err(_)), "who waits is woken");
            drop(stream);
            assert_eq!(handle.numbers(), None);
            assert_eq!((handle.id(), numbers.id > 0), (numbers.id, true));
            assert_ne!(client.handle().id(), numbers.id);
        }
    }
}
