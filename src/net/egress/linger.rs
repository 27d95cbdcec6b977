//! Unsent bytes of dropped streams: sent by a task while the runtime lives, by a thread afterwards.
//!
//! The thread also ends the streams of tasks whose peers take nothing: the runtime may have no timers.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::super::stats::Reason;
use super::Egress;
use crate::sys::fd::AsFd;
use crate::sys::{socket, tcp, transfer};

/// Time limit for a peer that takes none of a dropped stream's bytes. Unit tests wait for its end.
const LINGER: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 30 });
/// Polling interval of the thread.
const LOOK: Duration = Duration::from_millis(50);
/// Interval at which the thread checks the streams of tasks.
const CHECK: Duration = Duration::from_secs(1);

pub(super) struct Lingering {
    /// `None` once the work is done.
    egress: Option<Arc<Egress>>,
}

impl Lingering {
    pub(super) fn new(egress: Arc<Egress>) -> Self {
        Self { egress: Some(egress) }
    }

    pub(super) async fn run(mut self) {
        if let Some(egress) = &self.egress {
            watch(egress);
            let sent = poll_fn(|cx| egress.poll_drained(cx, Reason::Dropped)).await;
            if sent.is_err() && egress.queued() > 0 {
                // The runtime ends: the thread goes on.
                return;
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

static OUTLIVING: Mutex<Outliving> = Mutex::new(Outliving { streams: Vec::new(), watched: Vec::new(), runs: false });

struct Outliving {
    /// Streams that the thread sends.
    streams: Vec<Arc<Egress>>,
    /// Streams that tasks send.
    watched: Vec<Weak<Egress>>,
    runs: bool,
}

impl Outliving {
    /// Starts the thread if necessary. Without it, the streams close at process exit.
    fn start(&mut self) {
        if !self.runs {
            let thread = thread::Builder::new().name("millstream-linger".to_owned());
            self.runs = thread.spawn(run).is_ok();
        }
    }
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
    all.start();
}

/// Lets the thread end the stream if its peer takes nothing.
fn watch(egress: &Arc<Egress>) {
    let mut all = outliving();
    all.watched.push(Arc::downgrade(egress));
    all.start();
}

/// A stream that a task sends.
struct Watched {
    egress: Weak<Egress>,
    /// The bytes that wait here and in the socket, and since when their number is the same.
    left: (usize, Option<usize>),
    since: Instant,
}

impl Watched {
    /// Ends the stream if its peer has taken nothing for [`LINGER`]. Returns whether it goes on.
    fn goes_on(&mut self, now: Instant) -> bool {
        let Some(egress) = self.egress.upgrade() else { return false };
        let left = (egress.queued(), tcp::unconfirmed(egress.as_fd()));
        // A stream that waits for its turn of a shared rate does not wait for its peer.
        if left != self.left || egress.pulse().paced {
            (self.left, self.since) = (left, now);
        }
        let in_time = now - self.since < LINGER;
        if !in_time {
            egress.give_up();
        }
        in_time
    }
}

fn run() {
    let mut mine: Vec<(Arc<Egress>, usize, Instant)> = Vec::new();
    let (mut watched, mut checked): (Vec<Watched>, _) = (Vec::new(), Instant::now());
    loop {
        let mut all = outliving();
        let now = Instant::now();
        mine.extend(all.streams.drain(..).map(|egress| (egress, usize::MAX, now)));
        let new = |egress| Watched { egress, left: (usize::MAX, None), since: now };
        watched.extend(all.watched.drain(..).map(new));
        if mine.is_empty() && watched.is_empty() {
            all.runs = false;
            return;
        }
        drop(all);
        if now - checked >= CHECK {
            checked = now;
            watched.retain_mut(|watched| watched.goes_on(now));
        }
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

#[cfg(test)]
mod tests;
