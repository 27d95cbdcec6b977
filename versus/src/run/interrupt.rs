//! Ctrl-C: the first ends the run in good order, the second at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// What callers get in place of a result after Ctrl-C.
pub(super) const INTERRUPTED: &str = "interrupted";

impl Interrupt {
    /// Takes SIGINT and SIGTERM over.
    pub(super) fn install() -> Result<Self, String> {
        let interrupt = Self::default();
        let set = interrupt.0.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let guard = runtime.enter();
        let mut int = signal(SignalKind::interrupt()).map_err(|e| format!("no signals: {e}"))?;
        let mut term = signal(SignalKind::terminate()).map_err(|e| format!("no signals: {e}"))?;
        drop(guard);
        thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                    if set.swap(true, Relaxed) {
                        // The servers get their signal when this process ends.
                        std::process::exit(130);
                    }
                    eprintln!("\r\x1b[Kends after what is measured now is given up; once more ends at once");
                }
            });
        });
        Ok(interrupt)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Waits until `done` returns something, the time is over, which is `None`, or there was an interrupt, which is an error.
    pub(super) fn wait<T>(&self, time: Duration, mut done: impl FnMut() -> Option<T>) -> Result<Option<T>, String> {
        let end = Instant::now() + time;
        loop {
            if let Some(done) = done() {
                return Ok(Some(done));
            }
            if self.is_set() {
                return Err(INTERRUPTED.to_owned());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            thread::park_timeout(left.min(Duration::from_millis(5)));
        }
    }
}
