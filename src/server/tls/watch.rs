//! Periodic reload of certificate files.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::config::Tls;

/// Longest period that the clock supports for certain.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// Aborts the reload task when it is dropped.
#[derive(Debug)]
pub(in crate::server) struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tls {
    /// Starts the reload task, if [`reload_every`](super::TlsBuilder::reload_every) was called.
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
        // Fails only if the runtime ends.
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
        let tls = Tls::builder().certificate_pem(made.cert.pem(), made.signing_key.serialize_pem());
        let tls = tls.reload_every(Duration::MAX).build().unwrap();
        let watching = tls.watching().unwrap();
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        assert!(!watching.0.is_finished(), "it has panicked");
    }
}
