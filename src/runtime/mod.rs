//! Settings of the file driver, and a runtime per core.
//!
//! | I want to | use |
//! |---|---|
//! | choose io_uring or the blocking pool | [`DriverBuilder`], [`Io`] |
//! | know which one runs | [`driver_info`] |
//! | run a thread for each core that shares nothing | [`Cores`] |
//! | save the last system call of a turn | `RuntimeBuilderExt` (feature `fs`) |
//!
//! There are two ways to use the CPUs of a machine:
//!
//! * **tokio's multi-thread runtime** is the default choice. An idle thread steals work, so a connection with much work
//!   delays no other connection.
//! * **[`Cores`]**: a connection stays on the core that accepted it. Nothing moves between threads, so no lock or
//!   wake-up crosses them, and futures need not be `Send`. This pays for many connections with little work each. A
//!   connection with much work delays all connections of its core. The kernel distributes connections by a hash, which
//!   is even only for many connections.

// Modules:
//  setup     settings of the driver: io_uring or the blocking pool
//  turns     the dirty streams and programs of each worker thread
//  dirty     streams with bytes that wait
//  flusher   flushes these streams, and drives the ring, once per turn
//  backstop  a thread that flushes streams when a flusher is late
//  reactor   the ring of a worker thread, and its wake-ups
//  park      drives the ring of a thread when the thread waits
//  programs  runs a program of file operations by ring or on the blocking pool
//  admit     admits programs that may wait for a peer
//  chain     runs chains that users have built
//  blocking  work on the blocking pool
//  cores     threads that share nothing, each with a runtime, a ring and a CPU
//  place     CPUs of the cores
//  run       one future on each core, as one future
//  thread    a thread of a core

pub(crate) mod blocking;
#[cfg(feature = "fs")]
pub(crate) mod programs;

#[cfg(feature = "fs")]
mod admit;
mod backstop;
#[cfg(feature = "fs")]
mod chain;
mod cores;
mod dirty;
mod flusher;
#[cfg(feature = "fs")]
mod park;
mod place;
#[cfg_attr(not(uring), path = "no_reactor.rs")]
mod reactor;
mod run;
mod setup;
mod thread;
mod turns;

pub use cores::{Cores, CoresBuilder};
pub(crate) use dirty::{DirtyRef, Flush};
pub use flusher::driver_info;
#[cfg(feature = "fs")]
pub use park::RuntimeBuilderExt;
pub use run::Run;
pub use setup::{DriverBuilder, DriverInfo, Io};
pub use thread::Core;
pub(crate) use turns::Turn;
