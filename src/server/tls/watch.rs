//! Looking at the files of a certificate while a server runs.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::config::Tls;

/// Longer periods are this long: what lies further ahead, the clock may not be able to tell.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// Looks until it is dropped.
#[derive(Debug)]
pub(in crate::server) struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tls {
    /// Begins to look as often as [`reload_every`](Self::reload_every) says, if it does.
    pub(in crate::server) fn watching(&self) -> Option<Watching> {
        let every = self.every()?.min(LONGEST);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_period_without_end_is_a_long_one() {
        let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
        let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
        let watching = tls.reload_every(Duration::MAX).watching().unwrap();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        assert!(!watching.0.is_finished(), "it has panicked");
    }
}
