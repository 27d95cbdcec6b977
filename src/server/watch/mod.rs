//! Limits that depend on time, checked for all connections by one task.
//!
//! - `reaper`: the task, which also drains the connections.
//! - `check`: decides from observations of a connection at one moment, without I/O.
//! - `entry`: a connection as the task sees it, and the instructions that follow from a check.
//! - `waves`: when endless responses are told to end.
//! - `trim`: decides when the memory of a burst of connections is returned.

mod check;
mod entry;
mod reaper;
mod trim;
mod waves;

pub(super) use reaper::{ServerShared, reaper};
