//! A server that ends without cutting off what it has begun.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// What has become of the connections of a server that has drained, by [`Serve::drain`](super::Serve::drain).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections there were when the signal came: the sum of the next three.
    pub connections: usize,
    /// Those that finished by themselves.
    pub finished: usize,
    /// Those that finished and had answers which were told to [end](crate::http::Ending).
    pub told: usize,
    /// Those that were reset at the deadline.
    pub aborted: usize,
    /// Time from the signal to the end of the last of them.
    pub duration: Duration,
}

impl Drained {
    /// Of two servers that drained at the same time.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            finished: self.finished + other.finished,
            told: self.told + other.told,
            aborted: self.aborted + other.aborted,
            duration: self.duration.max(other.duration),
        }
    }
}

/// A server that runs until it is to drain; from [`Serve::drain`](super::Serve::drain).
#[must_use = "a server does nothing unless polled"]
pub struct Draining(pub(super) Pin<Box<dyn Future<Output = io::Result<Drained>> + Send>>);

impl Future for Draining {
    type Output = io::Result<Drained>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Drained>> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Draining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draining").finish_non_exhaustive()
    }
}
