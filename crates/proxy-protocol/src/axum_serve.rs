//! The listener in `axum::serve`.

use std::io;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use millstream::net::{Accept, PeerAddr};

use crate::events;
use crate::listener::ProxyListener;
use crate::peer::ProxyPeer;

/// With `app.into_make_service_with_connect_info::<ProxyPeer<SocketAddr>>()`, handlers extract
/// `ConnectInfo<ProxyPeer<SocketAddr>>`. With [`Connection`](millstream::server::Connection) in its place, the layers
/// of millstream know the client. [`serve`](millstream::server::serve()) provides both, and `ConnectInfo<SocketAddr>`.
impl<L> Listener for ProxyListener<L>
where
    L: Accept + Listener<Addr = <L as Accept>::Addr>,
{
    type Io = <L as Accept>::Stream;
    type Addr = ProxyPeer<<L as Accept>::Addr>;

    /// If the listener is broken, logs the error and never completes.
    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match Accept::accept(self).await {
            Ok(connection) => connection,
            Err(error) => {
                events::listener_failed(&error);
                std::future::pending().await
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(ProxyPeer::new(self.get_ref().local_addr()?, None))
    }
}

impl<L, A> Connected<IncomingStream<'_, ProxyListener<L>>> for ProxyPeer<A>
where
    L: Accept<Addr = A> + Listener<Addr = A>,
    A: PeerAddr + Clone + Sync,
{
    fn connect_info(stream: IncomingStream<'_, ProxyListener<L>>) -> Self {
        stream.remote_addr().clone()
    }
}
