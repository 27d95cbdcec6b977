//! A stream seen from outside, by whoever watches over many of them.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use super::egress::Egress;
use crate::kernel::socket;

/// A stream seen from outside: its numbers, and what can be done to it without owning it. Cheap to clone; holds neither the
/// stream nor its socket open.
#[derive(Clone)]
pub struct Handle {
    egress: Weak<Egress>,
}

/// What a stream has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Numbers {
    /// Bytes taken from the kernel.
    pub received: u64,
    /// Bytes the kernel took from us.
    pub sent: u64,
    /// System calls that sent bytes.
    pub writes: u64,
    /// Bytes that were written and wait to be handed to the kernel.
    pub queued: usize,
    /// Whether the kernel had no room for more when it was last asked, and has not said since that it has.
    pub blocked: bool,
}

impl Handle {
    pub(super) fn new(egress: &Arc<Egress>) -> Self {
        Self { egress: Arc::downgrade(egress) }
    }

    /// The numbers of now; `None` once the stream is closed.
    pub fn numbers(&self) -> Option<Numbers> {
        self.egress.upgrade().map(|egress| egress.numbers())
    }

    /// Bytes that the kernel took from us and the peer has not taken from it; `None` once the stream is closed.
    pub(crate) fn unacknowledged(&self) -> Option<usize> {
        self.egress.upgrade().and_then(|egress| socket::unacknowledged(egress.as_fd()))
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
            None => f.write_str("Handle(closed)"),
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
        }
    }
}
