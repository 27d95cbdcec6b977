//! Accept loop and options shared by all listeners.

use std::io;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;

use super::accept_failures::{Failures, PAUSE};
use super::inherited::{EarlyConnections, Inherited};
use crate::counters::log;
use crate::counters::{Counter, count};
use crate::net::options::Options;
use crate::net::pace::SharedPace;
use crate::net::profile::ProfileSwitch;
use crate::net::stream::Stream;
use crate::runtime::Turn;
use crate::sys::caps::{Capabilities, Support};
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::watch;
use crate::sys::watch::Watched;

#[derive(Debug)]
pub(super) struct Listener {
    io: Watched,
    turn: Arc<Turn>,
    options: Arc<Options>,
    pub(in crate::net) switch: ProfileSwitch,
    early: Option<EarlyConnections>,
}

impl Listener {
    /// Panics outside a tokio runtime with I/O enabled, and if a rate is shared and the runtime has no timers.
    #[track_caller]
    pub(super) fn new(
        socket: OwnedFd,
        options: Options,
        switch: ProfileSwitch,
        inherited: Option<Inherited>,
    ) -> io::Result<Self> {
        log_capabilities();
        if options.pace.is_some() {
            SharedPace::require_timer();
        }
        let io = watch::watch(socket, Interest::READABLE)?;
        let options = Arc::new(options);
        Ok(Self { io, turn: Turn::current(), options, switch, early: inherited.map(EarlyConnections::new) })
    }

    /// Accepts a connection by the call `accept`. Returns only errors of the listener itself.
    pub(in crate::net) async fn accept<A>(
        &self,
        accept: impl Fn(BorrowedFd<'_>) -> io::Result<(OwnedFd, A)>,
    ) -> io::Result<(Stream, A)> {
        let mut failures = Failures::default();
        loop {
            let accepted = self.io.async_io(Interest::READABLE, |fd| self.call(fd.as_fd(), &accept)).await;
            match self.connection(accepted) {
                Ok(connection) => return Ok(connection),
                Err(e) => failures.wait(e).await?,
            }
        }
    }

    fn call<A>(
        &self,
        fd: BorrowedFd<'_>,
        accept: impl Fn(BorrowedFd<'_>) -> io::Result<(OwnedFd, A)>,
    ) -> io::Result<(OwnedFd, A)> {
        match &self.early {
            Some(early) => early.accept(|| accept(fd)),
            None => accept(fd),
        }
    }

    fn connection<A>(&self, accepted: io::Result<(OwnedFd, A)>) -> io::Result<(Stream, A)> {
        let (fd, peer) = accepted?;
        Ok((self.stream(fd, false)?, peer))
    }

    /// Creates the stream of a connection. `resumed` is set if another process has served it before.
    pub(super) fn stream(&self, fd: OwnedFd, resumed: bool) -> io::Result<Stream> {
        let mut options = Arc::clone(&self.options);
        if let Some(profile) = self.switch.next() {
            Arc::make_mut(&mut options).profile = profile;
        }
        if resumed {
            Arc::make_mut(&mut options).resumed = Some(Arc::default());
        }
        let stream = Stream::new(fd, Arc::clone(&self.turn), options)?;
        count(Counter::Accepted, 1);
        Ok(stream)
    }

    /// As [`accept`](Self::accept), for one task.
    pub(super) fn poll_accept<A>(
        &self,
        cx: &mut Context<'_>,
        accept: impl Fn(BorrowedFd<'_>) -> io::Result<(OwnedFd, A)>,
    ) -> Poll<io::Result<(Stream, A)>> {
        let mut failures = Failures::default();
        loop {
            let _ = ready!(self.io.poll_read_ready(cx))?;
            let accepted = self.io.try_io(Interest::READABLE, |fd| self.call(fd.as_fd(), &accept));
            let error = match self.connection(accepted) {
                Ok(connection) => return Poll::Ready(Ok(connection)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => e,
            };
            if failures.need_pause(error)? {
                let waker = cx.waker().clone();
                self.turn.runtime().spawn(async move {
                    tokio::time::sleep(PAUSE).await;
                    waker.wake();
                });
                return Poll::Pending;
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.get_ref().as_fd()
    }
}

fn log_capabilities() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, reason) in missing() {
            log::unsupported(name, reason);
        }
    });
}

/// Returns what the machine lacks, and why.
fn missing() -> impl Iterator<Item = (&'static str, &'static str)> {
    Capabilities::get().entries().filter_map(|(name, support)| match support {
        Support::No(reason) => Some((name, &**reason)),
        _ => None,
    })
}

/// Implements a listener for a type with the field `listener`: `$accept` is the call, `$stream` the stream type, `$std`
/// that of the standard library, and `$adopt` prepares its socket.
macro_rules! listener {
    ($name:ident, $stream:ident, $std:ty, $addr:ty, $accept:path, $adopt:path) => {
        impl $name {
            /// Returns a connection that another process or server has accepted and served, with the options of this
            /// listener, and its peer. It is between two requests: a [server](crate::server::serve()) waits for the next
            /// one as on a connection that has had a response.
            ///
            /// [`Server::move_connections`](crate::server::Server::move_connections) gives such connections away. With a
            /// [`ResumedBody`](crate::body::ResumedBody) the server goes on with a response first.
            ///
            /// # Errors
            ///
            /// The socket is not connected, or not of this kind; the process is out of memory.
            ///
            /// # Panics
            ///
            /// Panics outside a tokio runtime with I/O enabled.
            pub fn adopt(&self, connection: $std) -> std::io::Result<($stream, $addr)> {
                $adopt($crate::sys::fd::AsFd::as_fd(&connection))?;
                let stream = $stream { stream: self.listener.stream(connection.into(), true)? };
                let peer = stream.peer_addr()?;
                Ok((stream, peer))
            }

            /// Accepts a connection.
            ///
            /// Connections that failed before they could be accepted are skipped: `ECONNABORTED`, `EPROTO`, and the
            /// network errors that [accept(2)](https://man7.org/linux/man-pages/man2/accept.2.html) lists. If the
            /// process or the machine is out of descriptors or memory (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`), and
            /// after 16 consecutive failures, it waits 50 ms and retries, which needs the runtime's timer.
            ///
            /// # Errors
            ///
            /// All other errors: the socket no longer listens (`EINVAL`), or the process may not accept (`EACCES`).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: no connection is lost.
            pub async fn accept(&self) -> std::io::Result<($stream, $addr)> {
                let (stream, peer) = self.listener.accept($accept).await?;
                Ok(($stream { stream }, peer))
            }

            /// As [`accept`](Self::accept), for one task. If several tasks poll, only the last one is woken.
            pub fn poll_accept(
                &self,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<($stream, $addr)>> {
                let accepted = self.listener.poll_accept(cx, $accept);
                accepted.map_ok(|(stream, peer)| ($stream { stream }, peer))
            }
        }

        $crate::sys::fd::as_fd!($name, listener);

        impl $crate::net::Accept for $name {
            type Stream = $stream;
            type Addr = $addr;

            fn accept(&self) -> impl Future<Output = std::io::Result<($stream, $addr)>> + Send {
                Self::accept(self)
            }
        }

        #[cfg(feature = "axum-08")]
        impl axum::serve::Listener for $name {
            type Io = $stream;
            type Addr = $addr;

            /// As the inherent `accept`, but if the listener is broken, logs the error and never completes.
            async fn accept(&mut self) -> (Self::Io, Self::Addr) {
                match Self::accept(self).await {
                    Ok(connection) => connection,
                    Err(e) => {
                        $crate::counters::log::listener_failed(&e);
                        std::future::pending().await
                    }
                }
            }

            fn local_addr(&self) -> std::io::Result<Self::Addr> {
                Self::local_addr(self)
            }
        }
    };
}
pub(in crate::net) use listener;

#[cfg(test)]
mod tests;
