//! The end of the turn, where what many tasks have asked for leaves together; and work that leaves the runtime's threads.
//!
//! ```text
//!  turns     for each worker thread of each runtime, what waits for the end of its turn
//!  dirty     streams with bytes that wait
//!  flusher   streams with bytes that wait, and the ring, once per turn
//!  backstop  a thread that flushes what a flusher does not flush in time
//!  reactor   the ring of a worker thread, and what wakes the flusher for it
//!  run       a program of file operations: by ring or by job
//!  admit     where a program goes that may wait for a peer
//!  chain     the same for chains that users have built
//!  setup     which way that is, asked for and reported
//!  job       work that waits for a disk, on the blocking pool
//! ```

pub(crate) mod job;
pub(crate) mod run;

mod admit;
mod backstop;
mod chain;
mod dirty;
mod flusher;
mod reactor;
mod setup;
mod turns;

pub(crate) use dirty::Held;
pub use reactor::RuntimeBuilderExt;
pub use setup::{DriverBuilder, DriverInfo, Io, driver_info};
pub(crate) use turns::{Flush, Turn};
