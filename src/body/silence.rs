//! A time limit for a peer that sends nothing.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Measures the time in which a peer sends nothing.
#[derive(Debug)]
pub struct Silence {
    limit: Duration,
    since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// Creates a limit that nothing has reached.
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: None, sleep: None }
    }

    /// The peer has sent something.
    pub fn end(&mut self) {
        self.since = None;
    }

    /// Ready if the silence lasts too long.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let Some(until) = self.since.get_or_insert(now).checked_add(self.limit) else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
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
