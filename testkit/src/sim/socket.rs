//! Simulated sockets, and the streams and the listener that a server takes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use millstream::internal::socket::{Leaving, Seen, SocketFacts, TakeOver, counted};
use millstream::internal::{Owed, Rewind};
use millstream::net::{Accept, CountedIo, Handle, PeerAddr};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::link::{Effects, Link, Now, Profile, Side};
use super::net::Net;

/// A socket of a simulated connection. Dropping it closes it.
#[derive(Debug)]
pub struct Socket {
    end: End,
    others: usize,
}

/// A side of a connection, without owning it.
#[derive(Clone, Debug)]
pub(super) struct End {
    net: Net,
    link: u64,
    side: Side,
}

impl Socket {
    /// Returns the number of the connection.
    pub fn link(&self) -> u64 {
        self.end.link
    }

    /// Returns whether the connection was reset.
    pub fn is_reset(&self) -> bool {
        self.end.is_reset()
    }

    /// Returns whether the end of the peer's bytes has arrived, also if it was followed by a reset.
    pub fn has_ended(&self) -> bool {
        self.end.look(|link, side| link.has_ended(side)).unwrap_or(true)
    }

    /// Waits until the end of the peer's bytes, or its reset, has arrived. Reads nothing.
    pub async fn ended(&self) {
        std::future::poll_fn(|cx| SocketFacts::poll_leaving(&self.end, cx).map(drop)).await;
    }

    /// Returns how many other sockets of servers were open when this one connected.
    pub fn others(&self) -> usize {
        self.others
    }

    /// Returns when the last bytes have arrived, in milliseconds since the start; 0 if none have.
    pub fn heard_at(&self) -> u64 {
        self.end.look(|link, side| link.heard_at(side)).unwrap_or(0)
    }

    /// Returns when the end of the peer's bytes, or its reset, has arrived, in milliseconds since the start.
    pub fn ended_at(&self) -> Option<u64> {
        self.end.look(|link, side| link.ended_at(side)).flatten()
    }

    /// Returns the bytes that have arrived and were not read.
    pub fn unread(&self) -> usize {
        SocketFacts::unread(&self.end)
    }

    /// Returns what a server asks about this side.
    pub(super) fn facts(&self) -> End {
        self.end.clone()
    }

    /// Resets the connection.
    pub fn reset(self) {
        SocketFacts::reset(&self.end);
    }

    /// Vanishes: nothing arrives any more at either side.
    pub fn vanish(self) {
        self.end.net.cut(self.end.link);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.end.change(Link::close);
    }
}

impl End {
    pub(super) fn is_reset(&self) -> bool {
        self.look(|link, side| link.is_reset(side)).unwrap_or(true)
    }

    /// Returns whether nothing arrives any more.
    pub(super) fn is_cut(&self) -> bool {
        self.look(|link, _| link.is_cut).unwrap_or(true)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Link, Side, &mut Effects) -> R) -> Option<R> {
        self.net.with(self.link, |link, effects| change(link, self.side, effects))
    }

    fn look<R>(&self, look: impl FnOnce(&mut Link, Side) -> R) -> Option<R> {
        self.change(|link, side, _| look(link, side))
    }
}

/// The answers that the kernel would give.
impl SocketFacts for End {
    fn unacknowledged(&self) -> usize {
        self.look(|link, side| link.unacknowledged(side)).unwrap_or(0)
    }

    fn unread(&self) -> usize {
        self.look(|link, side| link.unread(side)).unwrap_or(0)
    }

    fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<Leaving> {
        let leaving = self.look(|link, side| match (link.has_ended(side), link.unread(side)) {
            _ if link.has_hung_up(side) => Poll::Ready(Leaving::Gone),
            (true, 0) => Poll::Ready(Leaving::Half),
            (true, _) => Poll::Ready(Leaving::Unread),
            (false, _) => {
                link.wait_for_end(side, cx.waker());
                Poll::Pending
            }
        });
        leaving.unwrap_or(Poll::Ready(Leaving::Gone))
    }

    fn reset(&self) {
        self.change(Link::reset);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = buf.remaining();
        let read = self.end.change(|link, side, effects| {
            let read = link.read(side, most, effects);
            if matches!(read, Now::Waits) {
                link.wait_to_read(side, cx.waker());
            }
            read
        });
        match read.unwrap_or(Now::Fails(io::ErrorKind::NotConnected)) {
            Now::Done(bytes) => {
                buf.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            Now::Waits => Poll::Pending,
            Now::Fails(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.end.change(|link, side, effects| {
            let written = link.write(side, bufs, effects);
            if matches!(written, Now::Waits) {
                link.wait_to_write(side, cx.waker());
            }
            written
        });
        match written.unwrap_or(Now::Fails(io::ErrorKind::NotConnected)) {
            Now::Done(Some(n)) => Poll::Ready(Ok(n)),
            Now::Done(None) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Now::Waits => Poll::Pending,
            Now::Fails(error) => Poll::Ready(Err(error.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end.change(Link::shut_down);
        Poll::Ready(Ok(()))
    }
}

/// The server's side of a connection, which the server asks as it asks the kernel about a socket of its own.
#[derive(Debug)]
pub struct ServerIo(CountedIo<Socket>);

impl ServerIo {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut CountedIo<Socket>> {
        Pin::new(&mut self.get_mut().0)
    }
}

impl Seen for ServerIo {
    fn seen(&self) -> Handle {
        self.0.handle()
    }
}

impl Rewind for ServerIo {
    fn unread(&mut self, bytes: &[u8]) {
        self.0.unread(bytes);
    }
}

impl TakeOver for ServerIo {
    fn count_writes(&mut self, owed: Arc<Owed>) {
        self.0.count_writes(owed);
    }
}

macro_rules! io {
    ($read:path, $buf:ty, $write:path) => {
        impl $read for ServerIo {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: $buf) -> Poll<io::Result<()>> {
                <CountedIo<Socket> as $read>::poll_read(self.inner(), cx, buf)
            }
        }

        impl $write for ServerIo {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                <CountedIo<Socket> as $write>::poll_write(self.inner(), cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                <CountedIo<Socket> as $write>::poll_write_vectored(self.inner(), cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <CountedIo<Socket> as $write>::poll_flush(self.inner(), cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                <CountedIo<Socket> as $write>::poll_shutdown(self.inner(), cx)
            }
        }
    };
}
io!(AsyncRead, &mut ReadBuf<'_>, AsyncWrite);
io!(hyper::rt::Read, hyper::rt::ReadBufCursor<'_>, hyper::rt::Write);

/// The address of a simulated client.
#[derive(Clone, Copy, Debug)]
pub struct SimAddr(IpAddr);

impl PeerAddr for SimAddr {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.0)
    }
}

/// A listener for simulated connections.
#[derive(Debug)]
pub struct SimListener(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    connections: Mutex<VecDeque<io::Result<(Socket, SimAddr)>>>,
    arrived: Notify,
}

impl Waiting {
    fn connections(&self) -> MutexGuard<'_, VecDeque<io::Result<(Socket, SimAddr)>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections that a listener has not accepted are reset with it.
impl Drop for Waiting {
    fn drop(&mut self) {
        for (socket, _) in self.connections().drain(..).flatten() {
            socket.reset();
        }
    }
}

impl Accept for SimListener {
    type Stream = ServerIo;
    type Addr = SimAddr;

    async fn accept(&self) -> io::Result<(ServerIo, SimAddr)> {
        let (socket, from) = self.accept_socket().await?;
        let facts = Box::new(socket.facts());
        Ok((ServerIo(counted(socket, facts)), from))
    }
}

/// Connects to a [`SimListener`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimConnector {
    net: Net,
    waiting: Weak<Waiting>,
}

impl SimListener {
    pub fn new(net: &Net) -> (Self, SimConnector) {
        let waiting = Arc::default();
        let connector = SimConnector { net: net.clone(), waiting: Arc::downgrade(&waiting) };
        (Self(waiting), connector)
    }

    /// Returns the server's side of the next connection.
    ///
    /// # Errors
    ///
    /// [`SimConnector::fail`] was called.
    pub async fn accept_socket(&self) -> io::Result<(Socket, SimAddr)> {
        loop {
            let arrived = self.0.arrived.notified();
            if let Some(accepted) = self.0.connections().pop_front() {
                return accepted;
            }
            arrived.await;
        }
    }
}

impl SimConnector {
    /// Connects from an address, after the time that a handshake takes.
    ///
    /// # Errors
    ///
    /// `ErrorKind::ConnectionRefused` if the listener is gone.
    pub async fn connect(&self, from: IpAddr, profile: Profile) -> io::Result<Socket> {
        let wait = Duration::from_millis(profile.latency);
        sleep(wait).await;
        let waiting = self.waiting.upgrade().ok_or(io::ErrorKind::ConnectionRefused)?;
        let others = self.net.open_at(Side::Server);
        let link = self.net.open(profile);
        let end = |side| End { net: self.net.clone(), link, side };
        let server = Socket { end: end(Side::Server), others };
        waiting.connections().push_back(Ok((server, SimAddr(from))));
        waiting.arrived.notify_one();
        drop(waiting);
        sleep(wait).await;
        let client = Socket { end: end(Side::Client), others };
        // The listener behind this one may be gone. One that is there may reset the connection.
        match end(Side::Server).is_reset() && self.waiting.strong_count() == 0 {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => Ok(client),
        }
    }

    /// Lets the listener fail, behind the connections that it has not accepted yet. A listener that is gone does not fail.
    pub fn fail(&self, error: io::ErrorKind) {
        if let Some(waiting) = self.waiting.upgrade() {
            waiting.connections().push_back(Err(error.into()));
            waiting.arrived.notify_one();
        }
    }
}
