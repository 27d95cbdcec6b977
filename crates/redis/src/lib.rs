//! A log in a Redis stream, shared by the [hubs](millstream::sse::Hub) of several processes.
//!
//! ```text
//!  Hub::send ─▶ queue ─▶ writer ─XADD─▶ ┌─────────────────┐ ─XREAD─▶ tail ─▶ Sink ─▶ readers of this hub
//!                                       │ stream in Redis │ ─XREAD─▶ tail of another process ─▶ its readers
//!  reader ◀─ replay ◀──────XRANGE────── └─────────────────┘
//! ```
//!
//! `streams` has logs of another kind: of [streams with a key](millstream_resumable::SharedStreams).
//!
//! Contract:
//!
//! 1. Each entry has the id of its writer and the number of its append (`seen`): duplicates are dropped, and missing
//!    events are reported.
//! 2. Reads begin with the last known entry (`tail`, `replay`). If it no longer exists, events are missing, which
//!    is reported.
//! 3. Before an append is sent again, its first connection is closed at the server (`link`, `writer`).
//! 4. Queues are bounded. Replies are read in pages with a limit in bytes (`sizes`), and longer replies are rejected
//!    (`allowance`).

mod allowance;
mod backoff;
mod builder;
mod entry;
mod error;
mod events;
mod handle;
mod id;
mod link;
mod replay;
mod seen;
mod shared;
mod sizes;
mod stats;
mod streams;
mod tail;
mod writer;

pub use builder::RedisBuilder;
pub use error::RedisError;
pub use handle::Redis;
pub use stats::RedisState;
pub use streams::{RedisStreams, RedisStreamsBuilder};

// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
