//! A listener that also accepts the connections of the process before.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use millstream::body::{MovedBody, ResumedBody};
use millstream::net::{Accept, TcpListener, UnixListener};

use crate::queue::Queue;

/// A listener of this crate that can pass its connections on. Sealed.
pub trait Passed: Accept + AsFd + fmt::Debug + private::Adopt {}

impl Passed for TcpListener {}
impl Passed for UnixListener {}

pub(crate) mod private {
    use super::*;

    pub trait Adopt: Accept {
        fn adopt_socket(&self, socket: OwnedFd) -> io::Result<(Self::Stream, Self::Addr)>;

        /// Makes the server go on with the events of the reader at the other end.
        fn go_on(stream: &Self::Stream, events: ResumedBody);
    }

    impl Adopt for TcpListener {
        fn adopt_socket(&self, socket: OwnedFd) -> io::Result<(Self::Stream, Self::Addr)> {
            self.adopt(socket.into())
        }

        fn go_on(stream: &Self::Stream, events: ResumedBody) {
            events.go_on(&stream.handle());
        }
    }

    impl Adopt for UnixListener {
        fn adopt_socket(&self, socket: OwnedFd) -> io::Result<(Self::Stream, Self::Addr)> {
            self.adopt(socket.into())
        }

        fn go_on(stream: &Self::Stream, events: ResumedBody) {
            events.go_on(&stream.handle());
        }
    }
}

/// A connection of another process, or one that this process has kept. With the events of its reader, if it has one.
#[derive(Debug)]
pub(crate) struct Adopted {
    pub(crate) socket: OwnedFd,
    pub(crate) events: Option<ResumedBody>,
}

/// Connections for the next process, with the numbers of their listeners.
#[derive(Debug)]
pub(crate) enum Given {
    Connection(u8, OwnedFd, Option<MovedBody>),
    /// The server has drained: no further one comes.
    End,
}

/// A listener that was inherited, or is passed on later, from [`Handoff::tcp`](crate::Handoff::tcp) or
/// [`Handoff::unix`](crate::Handoff::unix). Accepts new connections, and those of the process before. Clones share it.
pub struct HandoffListener<L>(Arc<HandoffInner<L>>);

struct HandoffInner<L> {
    listener: L,
    number: u8,
    adopted: Arc<Queue<Adopted>>,
    given: Arc<Queue<Given>>,
}

impl<L: Passed> HandoffListener<L> {
    pub(crate) fn new(listener: L, number: u8, adopted: Arc<Queue<Adopted>>, given: Arc<Queue<Given>>) -> Self {
        Self(Arc::new(HandoffInner { listener, number, adopted, given }))
    }

    /// Returns the listener, for its address.
    pub fn get_ref(&self) -> &L {
        &self.0.listener
    }

    /// Returns the function for [`Server::move_connections`](millstream::server::Server::move_connections), which passes
    /// connections to the next process.
    pub fn give(&self) -> impl Fn(OwnedFd, Option<MovedBody>) + Send + Sync + 'static + use<L> {
        let (number, given) = (self.0.number, Arc::clone(&self.0.given));
        move |socket, events| given.push(Given::Connection(number, socket, events))
    }
}

impl<L: Passed> Accept for HandoffListener<L> {
    type Stream = L::Stream;
    type Addr = L::Addr;

    async fn accept(&self) -> io::Result<(L::Stream, L::Addr)> {
        let HandoffInner { listener, adopted, .. } = &*self.0;
        loop {
            tokio::select! {
                accepted = listener.accept() => return accepted,
                Adopted { socket, events } = adopted.pop() => {
                    // A client that has left meanwhile is no failure of the listener.
                    if let Ok((stream, addr)) = listener.adopt_socket(socket) {
                        if let Some(events) = events {
                            L::go_on(&stream, events);
                        }
                        return Ok((stream, addr));
                    }
                }
            }
        }
    }
}

impl<L> Clone for HandoffListener<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: fmt::Debug> fmt::Debug for HandoffListener<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoffListener").field("listener", &self.0.listener).finish_non_exhaustive()
    }
}
