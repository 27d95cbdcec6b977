//! The end of the turn, and work that leaves the runtime's threads.
//!
//! ```text
//!  flusher   streams with bytes that wait, flushed together at the end of a turn
//!  job       work that waits for a disk, on the blocking pool
//! ```

pub(crate) mod job;

mod flusher;

pub(crate) use flusher::{Flush, Turn};
