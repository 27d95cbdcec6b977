//! Waking readers, and writing to their connections. Bodies that only need comments are readers without a ring.
//!
//! - `beat`: when the wake task looks for readers that were idle, or have reached their age.
//! - `groups`: the readers of a hub, in groups that are woken together.
//! - `wake_task`: a task in each runtime, which wakes groups and writes to connections.
//! - `sinks`: readers that are written to without their tasks.
//! - `wait_list`: readers that wait in their tasks.

use std::time::Duration;

mod beat;
mod groups;
pub(super) mod sinks;
mod wait_list;
mod wake_task;

/// Maximum duration of settings; anything longer means never.
pub(super) const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Returns the period of comments; `None` for zero, which disables them.
pub(super) fn period(period: Duration) -> Option<Duration> {
    Some(period.min(LONG)).filter(|period| !period.is_zero())
}

pub(super) use beat::Beat;
pub(super) use groups::Groups;
pub(super) use sinks::{Attached, Frames, Outcome, ReaderSink};
pub(super) use wake_task::{Member, Refused, Wait};
