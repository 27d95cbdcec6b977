//! Sockets registered with the runtime's driver, and their readiness: by a stream of tokio, the only registration that
//! there is on every system. The stream itself neither reads nor writes, and the socket need be no TCP connection.

use std::future::Future;
use std::io;
use std::net::TcpStream;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::io::Interest;

use super::fd::{AsFd, OwnedFd};

/// A socket whose readiness the runtime's driver reports.
#[derive(Debug)]
pub(crate) struct Watched {
    /// A duplicate of the socket.
    registered: tokio::net::TcpStream,
    socket: OwnedFd,
}

impl Watched {
    pub(crate) fn get_ref(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<Ready<'_>>> {
        self.registered.poll_read_ready(cx).map_ok(|()| Ready(&self.registered))
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.registered.poll_write_ready(cx)
    }

    /// Calls `attempt` if the socket is ready, as far as the driver knows; `WouldBlock` clears the readiness.
    pub(crate) fn try_io<R>(
        &self,
        interest: Interest,
        attempt: impl FnOnce(&OwnedFd) -> io::Result<R>,
    ) -> io::Result<R> {
        self.registered.try_io(interest, || attempt(&self.socket))
    }

    pub(crate) async fn async_io<R>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(&OwnedFd) -> io::Result<R>,
    ) -> io::Result<R> {
        self.registered.async_io(interest, || attempt(&self.socket)).await
    }
}

/// A socket that is ready to read.
#[derive(Debug)]
pub(crate) struct Ready<'a>(&'a tokio::net::TcpStream);

#[track_caller]
pub(crate) fn watch(socket: OwnedFd, _: Interest) -> io::Result<Watched> {
    let duplicate = socket.as_fd().try_clone_to_owned()?;
    Ok(Watched { registered: tokio::net::TcpStream::from_std(TcpStream::from(duplicate))?, socket })
}

/// Returns whether no more bytes will arrive at a socket that is ready to read.
pub(crate) fn is_read_closed(ready: &Ready<'_>) -> bool {
    // Ready at once, because the socket is.
    let told = pin!(ready.0.ready(Interest::READABLE)).poll(&mut Context::from_waker(Waker::noop()));
    matches!(told, Poll::Ready(Ok(told)) if told.is_read_closed())
}

/// Runs `attempt`, and clears the readiness that led to it if `attempt` also returns `true`: the socket is empty. tokio
/// clears it only for a call that would have to wait, so after a short read it stays, and one more call is made.
pub(crate) fn attempt<R>(ready: Ready<'_>, attempt: impl FnOnce() -> (io::Result<R>, bool)) -> io::Result<R> {
    let mut result = None;
    let ran = ready.0.try_io(Interest::READABLE, || {
        let (made, is_empty) = attempt();
        result = Some(made);
        if is_empty { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    // Without a result, the driver has cleared the readiness meanwhile.
    result.unwrap_or_else(|| Err(ran.err().unwrap_or_else(|| io::ErrorKind::WouldBlock.into())))
}
