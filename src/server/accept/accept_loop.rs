//! A running server. Each connection has its own task, so a failure affects no other connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Extensions;
use tokio::task::JoinHandle;

use super::identity::Connection;
use super::refuse::refuse;
#[cfg(tls)]
use super::secure::secure;
use super::settings::Settings;
use crate::counters::log;
use crate::counters::span::Span;
use crate::net::{Accept, PeerAddr, Seen};
use crate::server::connection::{Protocols, Run, connection};
use crate::server::drain::Drained;
use crate::server::request::{Adapter, HttpService};
use crate::server::state::{ConnState, Peer};
#[cfg(tls)]
use crate::server::tls::{Tls, Watching};
use crate::server::watch::{ServerShared, reaper};
use crate::sync::guarded;

/// Maximum number of connections accepted after the signal to drain: more than can be waiting.
const WAITING: usize = 1 << 16;

pub(in crate::server) struct AcceptLoop<L: Accept, S> {
    listener: L,
    service: S,
    settings: Settings<L::Addr>,
    shared: Arc<ServerShared>,
    reaper: Option<JoinHandle<Drained>>,
    #[cfg(tls)]
    _watching: Option<Watching>,
}

impl<L: Accept, S> Drop for AcceptLoop<L, S> {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

impl<L: Accept, S: HttpService> AcceptLoop<L, S> {
    pub(in crate::server) fn start(listener: L, service: S, mut settings: Settings<L::Addr>) -> Self {
        // Panics here, and not in the reaper, if the runtime has no timers.
        drop(tokio::time::sleep(Duration::ZERO));
        let limits = std::mem::take(&mut settings.limits);
        // Only reading detects that these clients leave. Over TLS they end their side by `close_notify`.
        let must_read = !L::Stream::SEES_LEAVING || settings.is_tls();
        let limits = if must_read { limits.half_close(Duration::ZERO) } else { limits };
        if !L::Stream::SEES_LEAVING {
            log::streams_of_others();
        }
        let protocols = Arc::new(Protocols::new(&limits, &settings.hooks, settings.takeover));
        let moves = !must_read && protocols.takes_over;
        let successor = settings.successor.take().filter(|_| moves);
        let shared = ServerShared::new(limits, protocols, Arc::clone(&settings.limiter), successor);
        let reaper = Some(tokio::spawn(reaper(Arc::clone(&shared))));
        Self {
            shared,
            reaper,
            #[cfg(tls)]
            _watching: settings.tls.as_ref().and_then(Tls::watching),
            listener,
            service,
            settings,
        }
    }

    /// Accepts connections until the listener fails.
    pub(in crate::server) async fn accept(&mut self) -> io::Result<Infallible> {
        loop {
            let (stream, addr) = self.listener.accept().await?;
            self.begin(stream, addr);
            // For listeners that are always ready: the signal to drain and the connections have their turn, too.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Accepts connections until `signal` is ready, and then the connections that are already waiting.
    pub(in crate::server) async fn accept_until(mut self, signal: impl Future) -> io::Result<Self> {
        {
            let (mut signal, mut accept) = (pin!(signal), pin!(self.accept()));
            let signalled = poll_fn(|cx| match signal.as_mut().poll(cx) {
                Poll::Ready(_) => Poll::Ready(Ok(())),
                Poll::Pending => accept.as_mut().poll(cx).map(|ended| ended.map(|never| match never {})),
            });
            signalled.await?;
        }
        self.accept_waiting().await;
        Ok(self)
    }

    async fn accept_waiting(&mut self) {
        let mut asks_again = false;
        for _ in 0..WAITING {
            let mut accept = pin!(self.listener.accept());
            match poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx))).await {
                Poll::Ready(Ok((stream, addr))) => {
                    asks_again = false;
                    self.begin(stream, addr);
                }
                // The task's budget may be used up, or the runtime may not have polled the socket yet.
                Poll::Pending if !asks_again => {
                    asks_again = true;
                    tokio::task::yield_now().await;
                }
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
    }

    fn begin(&self, stream: L::Stream, addr: L::Addr) {
        let (shared, handle) = (&self.shared, stream.seen());
        let Some(permit) = shared.limiter.admit(addr.ip(), &shared.limits) else {
            // The handshake is most of the cost of a connection, and a TLS client understands no answer before it.
            if self.settings.is_tls() {
                return handle.reset();
            }
            return refuse(&shared.limiter.refused, &shared.limits, stream, handle);
        };
        let peer = Peer { ip: addr.ip(), is_tls: self.settings.is_tls(), ..Peer::default() };
        let conn_state = ConnState::new(Arc::clone(&shared.limits), handle.clone(), peer, permit);
        if handle.is_resumed() {
            // Its first request was answered elsewhere.
            conn_state.requests.begin();
            conn_state.requests.end();
        }
        let (running, protocols) = (shared.enter(&conn_state), Arc::clone(&shared.protocols));
        // A panic ends this connection and not the server.
        let Some((adapter, span)) = guarded(|| self.adapt(&conn_state, addr)) else { return };
        #[cfg(tls)]
        let first = match self.settings.tls.clone() {
            Some(tls) => secure(tls, protocols, stream, adapter),
            None => connection(protocols, stream, adapter),
        };
        #[cfg(not(tls))]
        let first = connection(protocols, stream, adapter);
        tokio::spawn(Run { step: first, held: Box::new((span, running)) });
    }

    /// Calls the code of users that a connection begins with.
    fn adapt(&self, conn_state: &Arc<ConnState>, addr: L::Addr) -> (Adapter<S>, Span) {
        let mut adapter = Adapter::new(self.service.clone(), Arc::clone(conn_state));
        let span = Span::connection(conn_state.handle.id(), &addr);
        if let Some(hook) = &self.settings.on_connection {
            identify(&addr, conn_state, adapter.extensions_mut());
            hook(adapter.extensions_mut(), &Connection::accepted(conn_state), &addr);
        } else {
            adapter.identify = Some(Box::new(move |conn_state, extensions| identify(&addr, conn_state, extensions)));
        }
        (adapter, span)
    }

    pub(in crate::server) async fn drain(mut self, deadline: Duration) -> io::Result<Drained> {
        self.shared.drain(deadline);
        let reaper = self.reaper.take().expect("internal: drained once");
        drop(self);
        reaper.await.map_err(io::Error::other)
    }
}

/// Adds the values that identify a client to the extensions of its requests.
fn identify(addr: &impl PeerAddr, conn_state: &Arc<ConnState>, extensions: &mut Extensions) {
    addr.identify(&conn_state.handle, extensions);
    extensions.insert(Connection::accepted(conn_state));
}
