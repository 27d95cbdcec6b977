//! Limits that depend on time, checked for all connections by one task.
//!
//! - `reaper`: the task, which also drains the connections.
//! - `check`: decides from observations of a connection at one moment, without I/O.
//! - `trim`: decides when the memory of a burst of connections is returned.

mod check;
mod reaper;
mod trim;

pub(super) use reaper::{ServerShared, reaper};
