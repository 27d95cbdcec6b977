//! A log in a Redis stream, that the hubs of several processes share (feature `redis`).
//!
//! ```text
//!  Hub::send ─▶ queue ─▶ writer ─XADD─▶ ┌────────────────┐ ─XREAD─▶ tail ─▶ Sink ─▶ readers of this hub
//!                                       │ stream in Redis │ ─XREAD─▶ tail of another process ─▶ its readers
//!  a reader that comes back ─▶ replay ◀─XRANGE─ └────────────────┘
//! ```
//!
//! The contract:
//!
//! 1. Each entry tells who has appended it and as which of his appends ([`seen`]): doubles are dropped, holes are told.
//! 2. Whoever reads begins with the last entry that it has ([`tail`], [`replay`]). If that is not there, events are
//!    missing, and it says so.
//! 3. Before anything is sent again, the connection it was sent by is ended at the other side ([`link`], [`writer`]).
//! 4. What waits is bounded. What Redis answers is read page by page, by bytes ([`sizes`]), and a reply that is longer than
//!    it was meant to be is refused ([`allowance`]).

mod allowance;
mod backoff;
mod builder;
mod entry;
mod error;
mod handle;
mod id;
mod link;
mod queue;
mod replay;
mod seen;
mod sizes;
mod stats;
mod tail;
mod writer;

pub use builder::RedisBuilder;
pub use error::RedisError;
pub use handle::Redis;
pub use stats::RedisState;

use handle::Shared;
