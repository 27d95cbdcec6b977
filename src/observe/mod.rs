//! What happened, in numbers.

pub(crate) mod counters;

pub use counters::Snapshot;
