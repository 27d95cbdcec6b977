//! How a runtime drives its files, and a runtime for each core.
//!
//! ```text
//!  setup    which way operations on files go: by io_uring or by the blocking pool, asked for and reported
//!  cores    threads that share nothing, each with a runtime, a ring and a CPU of its own
//!  place    which CPU that is
//!  run      one future on each of them, as one
//!  thread   the life of one of them
//! ```
//!
//! Two ways to use the CPUs of a machine:
//!
//! * **tokio's runtime of many threads** is what to start with. A thread that runs out of work takes some from another, so
//!   connections that are more work than others do no harm, and nothing has to be thought about.
//! * **[`Cores`]**: a connection stays on the core that accepted it. Nothing moves between threads, so nothing is locked or
//!   woken across them, futures need not be `Send`, and what each core does is set up for one thread: its ring, its caches of
//!   pool memory. It pays where there are many connections and each is little work. A connection that is much work
//!   delays those that share its core, whatever the others do; and the kernel spreads connections by a hash, evenly only when
//!   they are many.

mod cores;
mod place;
mod run;
mod thread;

pub use crate::turn::{DriverBuilder, DriverInfo, Io, RuntimeBuilderExt, driver_info};
pub use cores::{Cores, CoresBuilder};
pub use run::Run;
pub use thread::Core;
