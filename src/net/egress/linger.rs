//! Unsent bytes of dropped streams: sent by a task while the runtime lives, by a thread afterwards.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::super::stats::Reason;
use super::Egress;
use super::held_open::HeldOpen;
use crate::sys::fd::AsFd;
use crate::sys::{socket, tcp, transfer};

/// Time limit for a peer that takes none of a dropped stream's bytes.
const LINGER: Duration = Duration::from_secs(30);
/// Polling interval of the thread.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Lingering {
    /// `None` once the work is done.
    egress: Option<Arc<Egress>>,
    held: Option<HeldOpen>,
}

impl Lingering {
    pub(super) fn new(egress: Arc<Egress>, held: Option<HeldOpen>) -> Self {
        Self { egress: Some(egress), held }
    }

    pub(super) async fn run(mut self) {
        if let Some(egress) = &self.egress {
            send(egress).await;
            if let Some(held) = self.held {
                held.end(egress.as_fd());
            }
        }
        self.egress = None;
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        // The runtime ended first, perhaps before the task began.
        if let Some(egress) = self.egress.take() {
            outlive(egress);
        }
    }
}

/// Sends the remaining bytes. Resets a peer that reads nothing for [`LINGER`], so that it notices the missing bytes.
async fn send(egress: &Egress) {
    let left = || (egress.queued(), tcp::unconfirmed(egress.as_fd()));
    loop {
        let before = left();
        let sent = poll_fn(|cx| egress.poll_drained(cx, Reason::Dropped));
        if tokio::time::timeout(LINGER, sent).await.is_ok() {
            return;
        }
        if left() == before {
            return socket::reset(egress.as_fd());
        }
    }
}

static OUTLIVING: Mutex<Outliving> = Mutex::new(Outliving { streams: Vec::new(), runs: false });

struct Outliving {
    streams: Vec<Arc<Egress>>,
    runs: bool,
}

fn outliving() -> MutexGuard<'static, Outliving> {
    OUTLIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outlive(egress: Arc<Egress>) {
    if egress.finish() == 0 {
        return;
    }
    let mut all = outliving();
    all.streams.push(egress);
    if !all.runs {
        // Without a thread, the streams close at process exit.
        let thread = thread::Builder::new().name("millstream-linger".to_owned());
        all.runs = thread.spawn(run).is_ok();
    }
}

fn run() {
    let mut mine: Vec<(Arc<Egress>, usize, Instant)> = Vec::new();
    loop {
        let mut all = outliving();
        let now = Instant::now();
        mine.extend(all.streams.drain(..).map(|egress| (egress, usize::MAX, now)));
        if mine.is_empty() {
            all.runs = false;
            return;
        }
        drop(all);
        transfer::wait_for_room_blocking(mine.iter().map(|(egress, ..)| egress.as_fd()), LOOK);
        let now = Instant::now();
        let mut moved = false;
        mine.retain_mut(|(egress, left, since)| {
            let now_left = egress.finish();
            if now_left < *left {
                (*left, *since, moved) = (now_left, now, true);
            }
            let in_time = now - *since < LINGER;
            if now_left > 0 && !in_time {
                socket::reset(egress.as_fd());
            }
            now_left > 0 && in_time
        });
        if !moved {
            // A writable socket may still accept nothing.
            thread::park_timeout(LOOK);
        }
    }
}
