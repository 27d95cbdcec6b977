//! The ring of one worker thread: created by the first program, driven by the flusher, ended with it.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::runtime::Builder;

use super::setup::{DriverBuilder, Io, RingInfo};
use crate::counters::log;
use crate::counters::{Counter, count};
use crate::ring::driver::RingDriver;
use crate::sys::caps::{Capabilities, Support};
use crate::sys::uring::Uring;
use crate::sys::watch;
use crate::sys::watch::Watched;

/// Maximum number of files that the chains of one ring can have open.
const FILES: u32 = 256;

#[derive(Debug)]
pub(super) struct Reactor {
    pub(super) driver: Arc<RingDriver>,
    pub(super) info: RingInfo,
}

thread_local! {
    /// Drivers of the rings of this thread, for the hooks.
    static MINE: RefCell<Vec<Weak<RingDriver>>> = const { RefCell::new(Vec::new()) };
}

impl Reactor {
    /// Creates a ring, and the event of its completions. The error is the reason why there is none.
    pub(super) fn new(
        setup: &DriverBuilder,
        kick: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Self, CompletionEvent), String> {
        if setup.io == Io::Epoll {
            return Err("as asked for".to_owned());
        }
        let made = match Capabilities::get().io_uring() {
            Support::Yes => Self::make(setup, kick),
            Support::No(reason) => Err(reason.clone()),
        };
        if let Err(reason) = &made {
            count(Counter::RingsRefused, 1);
            log::unsupported("io_uring", reason);
        }
        made
    }

    fn make(setup: &DriverBuilder, kick: impl Fn() + Send + Sync + 'static) -> Result<(Self, CompletionEvent), String> {
        let mut uring = Uring::new(setup.ring).map_err(|refused| refused.to_string())?;
        let wake = uring.wake_fd().map_err(|e| format!("no descriptor to wait on: {e}"))?;
        // Without an I/O driver, tokio only panics.
        let completion_event = catch_unwind(AssertUnwindSafe(|| watch::watch(wake, Interest::READABLE)))
            .map_err(|_| "the runtime was built without enable_io()".to_owned())?
            .map_err(|e| format!("no wake-ups from the ring: {e}"))?;
        uring.register_files(FILES);
        let (entries, flags, files) = (uring.entries(), uring.flags().to_vec(), uring.files());
        let info = RingInfo { entries, flags, files };
        let driver = Arc::new(RingDriver::new(Box::new(uring), files, Box::new(kick)));
        MINE.with_borrow_mut(|mine| {
            mine.retain(|driver| driver.strong_count() > 0);
            mine.push(Arc::downgrade(&driver));
        });
        Ok((Self { driver, info }, CompletionEvent(completion_event)))
    }
}

/// Wakes the flusher when a ring has completions.
#[derive(Debug)]
pub(super) struct CompletionEvent(Watched);

impl CompletionEvent {
    /// Returns whether there may be completions. If not, the task is woken when there are.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut is_ready = false;
        // Cleared before the ring is reaped, so later completions signal again.
        while let Poll::Ready(Ok(mut guard)) = self.0.poll_read_ready(cx) {
            guard.clear_ready();
            is_ready = true;
        }
        is_ready
    }
}

fn drive() {
    // The list no longer exists on an ending thread.
    let _ = MINE.try_with(|mine| {
        // Wakers that run here may create a ring, which the next wait will drive.
        let Ok(mine) = mine.try_borrow() else { return };
        for driver in mine.iter().filter_map(Weak::upgrade) {
            if driver.has_work() || driver.in_flight() > 0 {
                driver.turn();
            }
        }
    });
}

pub(super) fn drive_at_park(builder: &mut Builder) -> &mut Builder {
    builder.on_thread_park(drive).on_thread_unpark(drive)
}
