//! io_uring: many operations of many tasks handed to the kernel together.
//!
//! ```text
//!  chain     programs as users build them
//!  op        what can be asked for, each request with everything it touches
//!  program   operations in order, linked; what became of each; the same by plain calls
//!  step      one of them, until it is done
//!  slots     programs by key: who owns them, who waits for them
//!  key       what a completion is about
//!  doubt     what a program may have to wait for, for ever
//!  room      who may have how much of a ring
//!  queue     what futures and driver share: programs to submit, to cancel, in flight
//!  driver    queue ─▶ ring ─▶ completions ─▶ wakers
//!  fill      what a turn hands over: what has room, up to a bound
//!  closing   giving a ring up; shut-down
//!  running   the future of a program
//!  buffers   pool memory that a ring knows by index
//!  port      the kernel as the driver sees it: a ring, or a script in tests
//!  net       receives and sends of sockets; what is above knows little of it
//! ```
//!
//! A ring is passive: it is driven by whoever calls [`Driver::turn`](driver::Driver::turn), which is the flusher of the
//! turn. Memory and descriptors that the kernel may touch belong to the program, and the program to the driver, from
//! submission until the last completion, whatever happens to the future that waits for it.
//!
//! **A ring without room behaves like no ring.** What it has no room for goes by plain calls, at once. Programs that may
//! wait for a peer have a bounded share of the ring, and one of the blocking pool; those that find both full wait in a
//! line of their own, which nothing else stands in. Room for cancels is set aside, so what nobody wants any more always
//! goes.

pub(crate) mod buffers;
pub(crate) mod chain;
pub(crate) mod doubt;
pub(crate) mod driver;
pub(crate) mod key;
pub(crate) mod net;
pub(crate) mod op;
pub(crate) mod port;
pub(crate) mod program;
pub(crate) mod slots;

#[cfg(test)]
mod both;
mod closing;
mod fill;
mod queue;
mod room;
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
