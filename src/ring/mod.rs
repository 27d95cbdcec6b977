//! io_uring: submits programs of many tasks to the kernel together.
//!
//! ```text
//!  driver    queue ─▶ ring ─▶ completions ─▶ wakers
//!  fill      the submission of a turn: everything that has room, up to a bound
//!  queue     the state shared by futures and driver: programs to submit, to cancel, in flight
//!  slots     programs by key, with the tasks that wait for them
//!  room      the shares of a ring's capacity
//!  key       keys of completions
//!  port      the kernel as seen by the driver: a ring, or a script in `tests`
//! ```
//!
//! A ring is passive: the flusher drives it by calling [`RingDriver::turn`](driver::RingDriver::turn). Memory and
//! descriptors that the kernel uses belong to the program. The program belongs to the driver from submission until the
//! last completion, regardless of the future that waits for it.
//!
//! **A ring without room behaves like no ring.** Programs that find no room run by plain calls at once. Programs that
//! may wait for a peer have a bounded share of the ring and of the blocking pool; if both are full, they wait in a
//! separate queue that no other program enters. Room for cancels is reserved, so everything can be cancelled.

pub(crate) mod driver;
pub(crate) mod key;
pub(crate) mod port;
pub(crate) mod slots;

mod fill;
mod queue;
mod room;

#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
