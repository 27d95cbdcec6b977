//! Waking readers, and writing to their connections.
//!
//! - `beat`: when the wake task looks for readers that were idle, or have reached their age.
//! - `groups`: the readers of a hub, in groups that are woken together.
//! - `wake_task`: a task in each runtime, which wakes groups and writes to connections.
//! - `sinks`: readers that are written to without their tasks.
//! - `wait_list`: readers that wait in their tasks.

mod beat;
mod groups;
pub(super) mod sinks;
mod wait_list;
mod wake_task;

pub(super) use beat::Beat;
pub(super) use groups::Groups;
pub(super) use sinks::{Attached, Frames, Outcome, ReaderSink};
pub(super) use wake_task::{Member, Refused, Wait};
