//! Handles to streams, for observers of many streams.

#[cfg(feature = "server")]
use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

#[cfg(feature = "server")]
use super::counts::{Counts, SocketFacts};
#[cfg(feature = "tonic-014")]
use super::credentials::Credentials;
use crate::net::egress::{Egress, Leaving};
use crate::net::profile::Profile;
use crate::net::send_strategy::SendStrategy;
#[cfg(feature = "server")]
use crate::net::stats::Reason;
use crate::net::stats::{KernelStats, Pulse, Record, StreamStats};
use crate::sys::fd::AsFd;
use crate::sys::{socket, tcp};

/// A handle to a stream: reports its numbers and controls it. Cheap to clone. Keeps neither stream nor socket open.
///
/// The handle of a [`CountedIo`](crate::net::CountedIo) has [`stats`](Self::stats) and [`reset`](Self::reset). Its
/// other methods behave as for a closed stream.
#[derive(Clone)]
pub struct Handle {
    id: u64,
    stream: Watched,
}

#[derive(Clone)]
enum Watched {
    Socket(Weak<Egress>),
    #[cfg(feature = "server")]
    Counted(Weak<Counts>),
}

/// Record of the last numbers of a stream, from [`Handle::closing`].
#[derive(Clone, Debug)]
pub struct Closing(Arc<Record>);

impl Closing {
    /// Returns the last numbers, including those of the kernel, or `None` while the stream lives. A dropped stream
    /// lives until its bytes are sent. [`TcpListenerBuilder::on_close`] receives the same numbers.
    ///
    /// [`TcpListenerBuilder::on_close`]: crate::net::TcpListenerBuilder::on_close
    pub fn stats(&self) -> Option<StreamStats> {
        self.0.get()
    }
}

impl Handle {
    pub(in crate::net) fn new(egress: &Arc<Egress>) -> Self {
        Self { id: egress.id(), stream: Watched::Socket(Arc::downgrade(egress)) }
    }

    #[cfg(feature = "server")]
    pub(super) fn of_counts(id: u64, counts: Weak<Counts>) -> Self {
        Self { id, stream: Watched::Counted(counts) }
    }

    fn egress(&self) -> Option<Arc<Egress>> {
        match &self.stream {
            Watched::Socket(egress) => egress.upgrade(),
            #[cfg(feature = "server")]
            Watched::Counted(_) => None,
        }
    }

    /// Asks the socket below a stream that is not of this crate, if there is one.
    #[cfg(feature = "server")]
    fn ask<R>(&self, ask: impl FnOnce(&dyn SocketFacts) -> R) -> Option<R> {
        let Watched::Counted(counts) = &self.stream else { return None };
        counts.upgrade()?.socket.as_deref().map(ask)
    }

    /// Returns the number of the stream, which is unique in this process and starts at 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the current numbers, without a system call; `None` once the stream is closed.
    pub fn stats(&self) -> Option<StreamStats> {
        match &self.stream {
            Watched::Socket(egress) => egress.upgrade().map(|egress| egress.stats()),
            #[cfg(feature = "server")]
            Watched::Counted(counts) => counts.upgrade().map(|counts| counts.stats()),
        }
    }

    pub(crate) fn pulse(&self) -> Option<Pulse> {
        match &self.stream {
            Watched::Socket(egress) => egress.upgrade().map(|egress| egress.pulse()),
            #[cfg(feature = "server")]
            Watched::Counted(counts) => counts.upgrade().map(|counts| counts.pulse()),
        }
    }

    /// Returns whether another process has served the connection before.
    #[cfg(feature = "server")]
    pub(crate) fn is_resumed(&self) -> bool {
        self.egress().is_some_and(|egress| egress.resumed().is_some())
    }

    /// Keeps the response that goes on, on a connection that another process has served before.
    #[cfg(feature = "server")]
    pub(crate) fn set_resumed(&self, response: Box<dyn Any + Send>) {
        if let Some(egress) = self.egress()
            && let Some(resumed) = egress.resumed()
        {
            resumed.set(response);
        }
    }

    /// Returns the response that goes on.
    #[cfg(feature = "server")]
    pub(crate) fn take_resumed(&self) -> Option<Box<dyn Any + Send>> {
        self.egress()?.resumed()?.take()
    }

    /// Waits until the peer has closed its side. Never ready if only a read can detect this. Only for the task that
    /// reads the stream.
    #[inline]
    pub(crate) fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<Leaving> {
        match &self.stream {
            Watched::Socket(egress) => {
                egress.upgrade().map_or(Poll::Ready(Leaving::Gone), |egress| egress.poll_leaving(cx))
            }
            #[cfg(feature = "server")]
            Watched::Counted(_) => self.ask(|socket| socket.poll_leaving(cx)).unwrap_or(Poll::Pending),
        }
    }

    /// Waits until the kernel has accepted every byte that was written. Only for the task that writes the stream.
    #[cfg(feature = "server")]
    pub(crate) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.egress().map_or(Poll::Ready(Ok(())), |egress| egress.poll_drained(cx, Reason::Flushed))
    }

    /// Returns the kernel's numbers, by two system calls; `None` once the stream is closed.
    pub fn kernel(&self) -> Option<KernelStats> {
        self.egress().map(|egress| KernelStats::of(egress.as_fd()))
    }

    /// Returns a record that will hold the last numbers, at the price of two system calls on close; `None` once the
    /// stream is closed.
    pub fn closing(&self) -> Option<Closing> {
        self.egress().map(|egress| Closing(egress.record()))
    }

    /// Returns the strategy of writes; `None` once the stream is closed.
    pub fn send_strategy(&self) -> Option<SendStrategy> {
        self.egress().map(|egress| egress.send_strategy())
    }

    /// Sets the strategy of writes from now on. Bytes are neither lost nor reordered. Does nothing once the stream is
    /// closed.
    pub fn set_send_strategy(&self, strategy: SendStrategy) {
        if let Some(egress) = self.egress() {
            egress.set_send_strategy(strategy);
        }
    }

    /// Returns the socket profile; `None` once the stream is closed.
    pub fn profile(&self) -> Option<Profile> {
        self.egress().map(|egress| egress.profile())
    }

    /// Sets the socket profile, at once. Does nothing once the stream is closed.
    pub fn set_profile(&self, profile: Profile) {
        if let Some(egress) = self.egress() {
            egress.set_profile(profile);
        }
    }

    /// Returns the congestion control of a TCP connection, such as `cubic` (`TCP_CONGESTION`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)); `None` for other or closed streams.
    pub fn congestion(&self) -> Option<String> {
        tcp::congestion(self.egress()?.as_fd()).ok()
    }

    /// Sets the congestion control by name.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not have it, this process may not use it, or the stream is not TCP: the error lists the
    /// available ones. `ErrorKind::NotConnected` once the stream is closed.
    pub fn set_congestion(&self, name: &str) -> io::Result<()> {
        let egress = self.egress().ok_or(io::ErrorKind::NotConnected)?;
        tcp::set_congestion(egress.as_fd(), name)
    }

    /// Returns the bytes sent that the peer has not acknowledged; `None` once the stream is closed. For a Unix socket,
    /// the memory of unread bytes.
    pub(crate) fn unacknowledged(&self) -> Option<usize> {
        #[cfg(feature = "server")]
        if let Some(bytes) = self.ask(|socket| socket.unacknowledged()) {
            return Some(bytes);
        }
        self.egress().and_then(|egress| tcp::unconfirmed(egress.as_fd()))
    }

    pub(crate) fn unread(&self) -> Option<usize> {
        #[cfg(feature = "server")]
        if let Some(bytes) = self.ask(|socket| socket.unread()) {
            return Some(bytes);
        }
        self.egress().and_then(|egress| tcp::unread(egress.as_fd()))
    }

    pub(crate) fn is_tcp(&self) -> bool {
        #[cfg(feature = "server")]
        if self.ask(|_| ()).is_some() {
            return true;
        }
        self.egress().is_some_and(|egress| tcp::congestion(egress.as_fd()).is_ok())
    }

    /// Limits the kernel's send rate in bytes per second (`SO_MAX_PACING_RATE`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)); `None` removes the limit.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Unsupported` if the stream is not TCP; `ErrorKind::NotConnected` once it is closed.
    pub fn set_pace(&self, bytes_per_second: Option<NonZeroU64>) -> io::Result<()> {
        let egress = self.egress().ok_or(io::ErrorKind::NotConnected)?;
        tcp::set_pacing(egress.as_fd(), bytes_per_second)
    }

    /// Ends the connection at once, by a reset if the address family supports it. Unsent bytes are lost, and the peer
    /// can tell that the message is incomplete. Waiting tasks are woken and see an error or the end.
    pub fn reset(&self) {
        match &self.stream {
            Watched::Socket(egress) => {
                if let Some(egress) = egress.upgrade() {
                    socket::reset(egress.as_fd());
                }
            }
            #[cfg(feature = "server")]
            Watched::Counted(counts) => {
                if let Some(counts) = counts.upgrade() {
                    counts.reset();
                }
            }
        }
    }

    /// Returns the address of this end of the connection; `None` if the stream is not a
    /// [`TcpStream`](crate::net::TcpStream), or is closed.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(&self.egress()?.as_fd()).ok()
    }

    /// Returns the address of the other end of the connection; `None` if the stream is not a
    /// [`TcpStream`](crate::net::TcpStream), or is closed.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        socket::peer_addr(&self.egress()?.as_fd()).ok()
    }

    #[cfg(feature = "tonic-014")]
    pub(super) fn credentials(&self) -> Option<Credentials> {
        Credentials::of(&self.egress()?.as_fd()).ok()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stats() {
            Some(numbers) => f.debug_tuple("Handle").field(&numbers).finish(),
            None => write!(f, "Handle({}, closed)", self.id),
        }
    }
}

#[cfg(test)]
mod tests;
