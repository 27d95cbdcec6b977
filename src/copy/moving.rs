//! A copy of a known number of bytes to a stream that is known only at run time.

use std::any::Any;
use std::io;
use std::task::{Context, Poll};

use tokio::io::AsyncRead;

use super::CopyError;
use super::ends::Target;
use super::engine::Engine;
use crate::fs::Step;
use crate::net;

/// A copy of `len` bytes from one stream to another stream of this crate, polled by its owner.
#[derive(Debug)]
pub struct Moving(Engine);

impl Moving {
    /// Creates a copy of `len` bytes.
    pub fn new(len: u64) -> Self {
        Self(Engine::new(Some(len), None, None))
    }

    /// Returns the number of bytes that were written.
    pub fn written(&self) -> u64 {
        self.0.report().bytes
    }

    /// Returns whether bytes were read that the target has not accepted.
    pub fn has_pending(&self) -> bool {
        self.0.pending() > 0
    }

    /// Continues. Ready when all bytes, or those before the end of `from`, were accepted by `to`.
    pub fn poll<S>(&mut self, cx: &mut Context<'_>, from: &mut S, to: &mut dyn Any) -> Poll<Result<(), CopyError>>
    where
        S: AsyncRead + Unpin + 'static,
    {
        match target(to) {
            Some(to) => self.0.poll(cx, from, to),
            None => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "not a socket of this crate");
                Poll::Ready(Err(CopyError::new(Step::Write, None, self.0.report(), error)))
            }
        }
    }
}

fn target(to: &mut dyn Any) -> Option<&mut dyn Target> {
    if to.is::<net::TcpStream>() {
        return to.downcast_mut::<net::TcpStream>().map(|stream| stream as _);
    }
    #[cfg(unix)]
    if to.is::<net::UnixStream>() {
        return to.downcast_mut::<net::UnixStream>().map(|stream| stream as _);
    }
    None
}
