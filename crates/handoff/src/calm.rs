//! When readers that are still here get the events of the next process.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Time without a batch after which it is calm. Readers that move leave sooner without events of the next process.
pub(crate) const CALM: Duration = Duration::from_millis(50);
/// Time from the first batch after which it is calm in any case: the next process gives up if its events are not taken
/// for too long.
const CALM_MAX: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Calm {
    timer: Pin<Box<Sleep>>,
    latest: Option<Instant>,
    is_calm: bool,
}

impl Calm {
    pub(crate) fn new() -> Self {
        Self { timer: Box::pin(sleep(CALM)), latest: None, is_calm: false }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// There is a batch.
    pub(crate) fn disturb(&mut self) {
        let now = Instant::now();
        let latest = *self.latest.get_or_insert(now + CALM_MAX);
        self.is_calm &= now >= latest;
        self.timer.as_mut().reset(latest.min(now + CALM));
    }

    /// Waits until it is calm. Cancel safe.
    pub(crate) async fn begins(&mut self) {
        self.timer.as_mut().await;
        self.is_calm = true;
    }
}

#[cfg(test)]
mod tests;
