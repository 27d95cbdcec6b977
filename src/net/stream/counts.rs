//! Counts of a stream that is not of this crate.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

pub use crate::net::egress::Leaving;
use crate::net::send_strategy::SendStrategy;
use crate::net::stats::{Meter, Pulse, StreamStats};

/// Questions of a server about the socket below a stream. The kernel answers for the streams of this crate. With this
/// trait another socket answers, such as a simulated one.
pub trait SocketFacts: std::fmt::Debug + Send + Sync {
    /// Returns the bytes sent that the peer has not acknowledged.
    fn unacknowledged(&self) -> usize;

    /// Returns the bytes received that were not read.
    fn unread(&self) -> usize;

    /// Waits until the peer has closed its side. Only for the task that reads the stream.
    fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<Leaving>;

    /// Ends the connection at once, by a reset.
    fn reset(&self);
}

/// Counts of a stream, shared with its handles.
#[derive(Debug)]
pub(super) struct Counts {
    pub(in crate::net) meter: Meter,
    /// Whether the last write waits for the inner stream.
    pub(in crate::net) blocked: AtomicBool,
    reset: AtomicBool,
    tasks: Mutex<Tasks>,
    /// `None` if there is nothing to ask.
    pub(super) socket: Option<Box<dyn SocketFacts>>,
}

/// Tasks to wake by a reset.
#[derive(Debug, Default)]
pub(in crate::net) struct Tasks {
    pub(in crate::net) reader: Option<Waker>,
    pub(in crate::net) writer: Option<Waker>,
}

impl Counts {
    pub(in crate::net) fn new(socket: Option<Box<dyn SocketFacts>>) -> Self {
        let (meter, flag) = (Meter::new(), AtomicBool::default);
        Self { meter, blocked: flag(), reset: flag(), tasks: Mutex::default(), socket }
    }

    pub(in crate::net) fn stats(&self) -> StreamStats {
        self.meter.stats(0, self.blocked.load(Ordering::Relaxed), SendStrategy::NoCork)
    }

    pub(in crate::net) fn pulse(&self) -> Pulse {
        Pulse {
            received: self.meter.bytes_received(),
            sent: self.meter.bytes_sent(),
            blocked: self.blocked.load(Ordering::Relaxed),
            ..Pulse::default()
        }
    }

    /// Makes all further calls fail, and wakes waiting tasks.
    pub(in crate::net) fn reset(&self) {
        self.reset.store(true, Ordering::SeqCst);
        if let Some(socket) = &self.socket {
            socket.reset();
        }
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        [tasks.reader, tasks.writer].into_iter().flatten().for_each(Waker::wake);
    }

    fn check(&self) -> io::Result<()> {
        match self.reset.load(Ordering::SeqCst) {
            true => Err(io::Error::new(io::ErrorKind::ConnectionReset, "the connection was reset by its handle")),
            false => Ok(()),
        }
    }

    /// Polls `work`, unless the stream was reset. `task` selects where the task is registered while it waits.
    pub(in crate::net) fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        task: fn(&mut Tasks) -> &mut Option<Waker>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        self.check()?;
        let polled = work(cx);
        if polled.is_pending() {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            let waiting = task(&mut tasks);
            if waiting.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *waiting = Some(cx.waker().clone());
            }
            drop(tasks);
            // A reset before the registration woke no task.
            self.check()?;
        }
        polled
    }
}
