//! Closing a ring, because it fails or because its runtime ends.

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

/// Interval of repeated cancels during shutdown.
const CANCEL_AGAIN: Duration = Duration::from_millis(20);
const ENDED: &str = "the runtime has shut down";

/// Leaks a value that the kernel may still use, and counts it.
pub(super) fn leak<T>(value: T) {
    count(Counter::RingLeaks, 1);
    #[expect(clippy::disallowed_methods, reason = "freeing it would be worse, and it is counted")]
    std::mem::forget(value);
}

impl Driver {
    /// Closes the ring: programs that were not submitted run by plain calls; completions in flight are still reaped.
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
        // These entries are never submitted, and end as if the kernel had cancelled them.
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

    /// Gives up entries in flight, whose results will never be known. Returns the number of programs.
    pub(super) fn lose(&self, after: &mut After) -> usize {
        let mut lost = 0;
        lock(&self.queue).lose(after, |program| {
            // The kernel may still write to its buffers, so they must never be reused.
            lost += 1;
            leak(program);
        });
        lost
    }

    /// Shuts down: cancels everything, reaps for at most `bound`, then leaks programs that have not ended, because
    /// closing the ring does not stop the kernel from writing into buffers. Returns the number of leaked programs.
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

    fn drain(&self, ring: &mut Ring, bound: Duration, after: &mut After) {
        let deadline = Instant::now() + bound;
        loop {
            self.reap(ring, after);
            let left = deadline.saturating_duration_since(Instant::now()).min(CANCEL_AGAIN);
            if self.in_flight() == 0 || left.is_zero() {
                break;
            }
            // Repeated, because chains continue. Fails before Linux 6.0, or in a sandbox; then only waiting is left.
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
