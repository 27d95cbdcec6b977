//! Giving a ring up, because it fails or because its runtime ends.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::driver::{Driver, Ring};
use super::program::Verdict;
use super::queue::After;
use super::sync::lock;
use crate::counters::log;
use crate::counters::{Counter, count};
use crate::sys::uring::Completion;

/// How long a driver that shuts down waits before it cancels again.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);
/// Why a driver that was shut down takes nothing.
const ENDED: &str = "the runtime has shut down";

/// Never frees what the kernel may go on using.
pub(super) fn leak<T>(value: T) {
    count(Counter::RingLeaks, 1);
    #[expect(clippy::disallowed_methods, reason = "freeing it would be worse, and it is counted")]
    std::mem::forget(value);
}

impl Driver {
    /// Gives the ring up: what was not handed over goes by plain calls, what is in flight is still reaped.
    pub(super) fn close(&self, ring: &mut Ring, reason: String, after: &mut After) {
        let mut queue = lock(&self.queue);
        if queue.closed.is_none() {
            count(Counter::RingsClosed, 1);
            if reason != ENDED {
                log::ring_closed(&reason);
            }
            queue.closed = Some(reason);
        }
        queue.cancels.clear();
        queue.later.clear();
        // Entries that stay in the submission queue for ever: as if the kernel had cancelled them.
        for (user_data, _) in ring.pushed.drain(..) {
            let result = Err(Errno::CANCELED.raw_os_error());
            let completion = Completion { key: user_data, result, more: false, notification: false, buffer: None };
            queue.complete(completion, after);
        }
        while let Some(key) = queue.again.pop_front().or_else(|| queue.todo.pop_front()) {
            queue.end(key, Verdict::Again, after);
        }
        queue.net.close(after);
    }

    /// Gives up what is in flight: nobody will ever know what became of it. Returns how many programs that are.
    pub(super) fn lose(&self, after: &mut After) -> usize {
        let mut lost = 0;
        lock(&self.queue).lose(after, |program| {
            // The kernel may still write to its buffers: they must never be used again.
            lost += 1;
            leak(program);
        });
        lost
    }

    /// Ends the driver: cancels all, reaps for at most `bound`, and leaks what has not ended by then. The ring is closed;
    /// that alone would not stop the kernel from writing into buffers. Returns how many programs were leaked.
    pub(crate) fn shutdown(&self, bound: Duration) -> usize {
        let mut guard = lock(&self.ring);
        let Some(mut ring) = guard.take() else { return 0 };
        drop(guard);
        let mut after = After::default();
        self.close(&mut ring, ENDED.to_owned(), &mut after);
        if ring.port.is_ours() {
            self.drain(&mut ring, bound, &mut after);
        }
        let lost = self.lose(&mut after);
        drop(ring);
        after.run();
        lost
    }

    /// Cancels all and reaps until nothing is in flight, for at most `bound`.
    fn drain(&self, ring: &mut Ring, bound: Duration, after: &mut After) {
        let deadline = Instant::now() + bound;
        loop {
            self.reap(ring, after);
            let left = deadline.saturating_duration_since(Instant::now()).min(CANCEL_AGAIN);
            if self.in_flight() == 0 || left.is_zero() {
                break;
            }
            // Each time, because chains go on to other steps meanwhile. Fails where the kernel is older than Linux 6.0, or
            // where somebody blocks it: then waiting must do.
            let _ = ring.port.cancel_all(left);
            match ring.port.enter(0, 1, Some(left)) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shutdown(Duration::from_secs(2));
    }
}
