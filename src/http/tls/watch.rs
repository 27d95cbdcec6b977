//! Looking at the files of a certificate while a server runs.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::config::Tls;

/// Looks until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tls {
    /// Begins to look as often as [`reload_every`](Self::reload_every) says, if it does.
    pub(in crate::http) fn watching(&self) -> Option<Watching> {
        let every = self.every()?;
        Some(Watching(tokio::spawn(watch(self.clone(), every)).abort_handle()))
    }
}

async fn watch(tls: Tls, every: Duration) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let tls = tls.clone();
        // It fails only if the runtime ends.
        if tokio::task::spawn_blocking(move || tls.reload_if_changed()).await.is_err() {
            return;
        }
    }
}
