//! io_uring: submits operations of many tasks to the kernel together.
//!
//! ```text
//!  chain     chains of steps, as users build them
//!  op        the operations, each with all memory and descriptors it uses
//!  program   linked operations in order; their outcomes; the same operations by plain calls
//!  step      one operation of a program, until it is done
//!  slots     programs by key, with the tasks that wait for them
//!  key       keys of completions
//!  peer_waits   the peers that a program may wait for without bound
//!  room      the shares of a ring's capacity
//!  queue     the state shared by futures and driver: programs to submit, to cancel, in flight
//!  driver    queue ─▶ ring ─▶ completions ─▶ wakers
//!  fill      the submission of a turn: everything that has room, up to a bound
//!  buffers   pool memory that a ring knows by index
//!  port      the kernel as seen by the driver: a ring, or a script in tests
//!  fuzz      the same script, from the bytes of a fuzzer
//!  net       receives and sends of sockets; the modules above know little of it
//! ```
//!
//! In the portable build there is no ring: `chain`, `op`, `program`, `step` and `peer_waits` run by plain calls.
//!
//! A ring is passive: the flusher drives it by calling [`RingDriver::turn`](driver::RingDriver::turn). Memory and descriptors
//! that the kernel uses belong to the program. The program belongs to the driver from submission until the last
//! completion, regardless of the future that waits for it.
//!
//! **A ring without room behaves like no ring.** Programs that find no room run by plain calls at once. Programs that
//! may wait for a peer have a bounded share of the ring and of the blocking pool; if both are full, they wait in a
//! separate queue that no other program enters. Room for cancels is reserved, so everything can be cancelled.

#[cfg(uring)]
pub(crate) mod buffers;
pub(crate) mod chain;
#[cfg_attr(not(uring), path = "no_driver.rs")]
pub(crate) mod driver;
#[cfg(uring)]
pub(crate) mod key;
#[cfg_attr(not(uring), path = "no_net.rs")]
pub(crate) mod net;
pub(crate) mod op;
pub(crate) mod peer_waits;
#[cfg(uring)]
pub(crate) mod port;
pub(crate) mod program;
#[cfg_attr(not(uring), path = "no_slots.rs")]
pub(crate) mod slots;

#[cfg(all(test, uring))]
mod both;
#[cfg(uring)]
mod fill;
#[cfg(not(uring))]
mod no_programs;
#[cfg(uring)]
mod queue;
mod room;
mod step;
#[cfg(uring)]
mod sync;

#[cfg(all(any(test, fuzzing), uring))]
mod fake;
#[cfg(all(fuzzing, uring))]
pub(crate) mod fuzz;
#[cfg(all(any(test, fuzzing), uring))]
mod sqe;
#[cfg(all(test, uring))]
mod tests;

pub use op::StepOutcome;
