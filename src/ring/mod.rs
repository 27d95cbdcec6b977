//! io_uring: many operations of many tasks handed to the kernel together.
//!
//! ```text
//!  chain     programs as users build them
//!  op        what can be asked for, each request with everything it touches
//!  program   operations in order, linked; what became of each; the same by plain calls
//!  step      one of them, until it is done
//!  slots     programs by key: who owns them, who waits for them
//!  key       what a completion is about
//!  inbox     sockets that the kernel receives from until it is told to stop
//!  outbox    sends on many sockets in one call
//!  queue     what futures and driver share: programs to submit, to cancel, in flight
//!  driver    queue ─▶ ring ─▶ completions ─▶ wakers
//!  closing   giving a ring up; shut-down
//!  running   the future of a program
//!  buffers   pool memory that a ring knows by index
//!  port      the kernel as the driver sees it: a ring, or a script in tests
//! ```
//!
//! A ring is passive: it is driven by whoever calls [`Driver::turn`](driver::Driver::turn), which is the flusher of the
//! turn. Memory and descriptors that the kernel may touch belong to the program, and the program to the driver, from
//! submission until the last completion, whatever happens to the future that waits for it.

pub(crate) mod buffers;
pub(crate) mod chain;
pub(crate) mod driver;
pub(crate) mod inbox;
pub(crate) mod key;
pub(crate) mod op;
pub(crate) mod outbox;
pub(crate) mod port;
pub(crate) mod program;
pub(crate) mod slots;

#[cfg(test)]
mod both;
mod closing;
mod queue;
mod running;
mod step;
mod sync;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod sqe;
#[cfg(test)]
mod tests;

pub use chain::Chain;
pub use program::Outcome;
