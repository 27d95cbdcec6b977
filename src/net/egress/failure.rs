//! Failures of streams whose bytes could not be sent.
//!
//! tokio's stream sends each write at once, so each write returns the kernel's own error. Here the flusher may meet an
//! error after the write was accepted. The next call returns the error once. Reading continues meanwhile, because the
//! peer may have closed only one side.

use std::io;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use super::socket_writer::SendFailure;
use super::{Egress, EgressState};
use crate::counters::log;
use crate::counters::{Counter, count};
use crate::sys::errno::Errno;
use crate::sys::fd::AsFd;
use crate::sys::socket;

impl Egress {
    /// Records that sending has failed, for a later call to return. Waiting bytes are lost.
    pub(super) fn fail(&self, state: &mut EgressState, failure: SendFailure) {
        state.failure = Some(failure);
        state.unreported = true;
        self.failed.store(true, Ordering::Relaxed);
        state.lose(&self.writer.meter);
        if matches!(failure, SendFailure::Torn) {
            // The reset tells the peer that the message is incomplete, and wakes a reading task.
            socket::reset(self.as_fd());
            count(Counter::TornFiles, 1);
            log::file_torn();
        }
    }

    /// Resets the connection, so that the peer notices the missing bytes, and ends the task that sends.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        socket::reset(self.as_fd());
        self.fail(&mut state, SendFailure::Errno(Errno::TIMEDOUT));
        self.sent(state);
    }

    /// As [`fail`](Self::fail), for a call that returns the error itself.
    pub(super) fn fail_now(&self, state: &mut EgressState, failure: SendFailure) -> io::Error {
        self.fail(state, failure);
        self.mark_reported(state);
        failure.into()
    }

    pub(super) fn mark_reported(&self, state: &mut EgressState) {
        state.unreported = false;
        // Every call returns the error of a torn file.
        let torn = matches!(state.failure, Some(SendFailure::Torn));
        self.failed.store(torn, Ordering::Relaxed);
    }

    /// Leaves a failure to the next call of the stream's task.
    pub(super) fn report_again(&self, state: &mut EgressState) {
        state.unreported = true;
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn report(&self, state: &mut EgressState) -> io::Result<()> {
        match state.failure {
            Some(failure @ SendFailure::Torn) => Err(failure.into()),
            Some(failure) if state.unreported => {
                self.mark_reported(state);
                Err(failure.into())
            }
            _ => Ok(()),
        }
    }

    /// As [`report`](Self::report), for a caller that does not write.
    pub(in crate::net) fn check(&self) -> io::Result<()> {
        if !self.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.report(&mut self.state())
    }

    /// Returns the failure for a reader at the end of the stream: for instance a reset, which the kernel reports only
    /// once, and has reported to the flusher. A peer that takes no more bytes may have ended normally.
    ///
    /// Always takes the lock: the flusher may have the error from the kernel and not have recorded it yet.
    pub(in crate::net) fn check_end(&self) -> io::Result<()> {
        let mut state = self.state();
        match state.failure {
            Some(SendFailure::Errno(errno)) if errno != Errno::PIPE => self.report(&mut state),
            _ => Ok(()),
        }
    }

    /// Records that reading has failed: the kernel refuses writes, and each write returns its error at once.
    #[cold]
    pub(in crate::net) fn reading_failed(&self) {
        self.state().ended = true;
    }

    /// Registers the reading task, to be woken for a failure: it may be the writer too.
    #[inline]
    pub(in crate::net) fn wake_at_failure(&self, cx: &Context<'_>) {
        self.reader.register(cx.waker());
        if self.failed.load(Ordering::Relaxed) && self.state().unreported {
            cx.waker().wake_by_ref();
        }
    }

    pub(super) fn reader_to_wake(&self, state: &EgressState) -> Option<Waker> {
        if state.unreported { self.reader.take() } else { None }
    }

    /// Returns an error if the caller would wait for a runtime that has ended.
    pub(super) fn check_runtime(&self) -> io::Result<()> {
        match self.writer.is_unwatched() {
            true => Err(io::Error::other("the runtime of the stream has shut down")),
            false => Ok(()),
        }
    }
}
