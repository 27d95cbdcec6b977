//! One task that ends and forgets all streams in time.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::table::StreamsShared;

/// Tells the task about a new stream. Starts it if it does not run.
pub(crate) fn watch(streams: &Arc<StreamsShared>, runtime: &Handle) {
    // Spawned without the lock, because a runtime that ends drops the task at once.
    if std::mem::replace(&mut streams.table().reaps, true) {
        streams.wakes.notify_one();
        return;
    }
    let mut reaper = Reaper { streams: Arc::downgrade(streams), ended: false };
    let wakes = Arc::clone(&streams.wakes);
    drop(runtime.spawn(async move { reaper.run(&wakes).await }));
}

/// Starts the task if there are streams that it does not check, because its runtime has ended.
pub(crate) fn watch_again(streams: &Arc<StreamsShared>, runtime: &Handle) {
    let is_left = {
        let table = streams.table();
        !table.reaps && table.len() > 0
    };
    if is_left {
        watch(streams, runtime);
    }
}

/// The task. Dropped before it has ended if its runtime ends; the next call then starts another one.
struct Reaper {
    streams: Weak<StreamsShared>,
    ended: bool,
}

impl Reaper {
    async fn run(&mut self, wakes: &Notify) {
        // Ends when the last handle is dropped, too.
        while let Some(next) = self.streams.upgrade().map(|streams| streams.reap(Instant::now())) {
            let Some(next) = next else {
                self.ended = true;
                return;
            };
            // An error means that a stream is due.
            let _ = timeout_at(next, wakes.notified()).await;
            tokio::task::consume_budget().await;
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some(streams) = self.streams.upgrade().filter(|_| !self.ended) {
            streams.table().reaps = false;
        }
    }
}
