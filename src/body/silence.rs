//! A time limit for a peer that sends nothing, and the timer of such limits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for deadlines that only move forwards.
#[derive(Debug, Default)]
pub(super) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready once `until` has come. No earlier call may have had a later deadline.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        loop {
            // The timer is reset only when it has expired, because a reset costs a lock.
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}

/// Measures the time in which a peer sends nothing.
#[derive(Debug)]
pub struct Silence {
    limit: Duration,
    since: Option<Instant>,
    timer: Timer,
}

impl Silence {
    /// Creates a limit that nothing has reached.
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: None, timer: Timer::default() }
    }

    /// The peer has sent something.
    pub fn end(&mut self) {
        self.since = None;
    }

    /// Leaves out the time before `at`. Returns whether the silence had begun before.
    pub fn begin_after(&mut self, at: Instant) -> bool {
        let is_shorter = self.since.is_some_and(|since| since < at);
        if is_shorter {
            self.since = Some(at);
        }
        is_shorter
    }

    /// Ready if the silence lasts too long.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.since.get_or_insert_with(Instant::now).checked_add(self.limit) {
            Some(until) => self.timer.poll(cx, until),
            None => Poll::Pending,
        }
    }
}
