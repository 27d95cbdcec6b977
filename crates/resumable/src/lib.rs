//! Streams of events with a key, which outlive their readers.
//!
//! - `streams`: the streams by key.
//! - `handle`, `sender`: one stream, for its readers and for its producer.
//! - `builder`, `owner`, `end`, `error`: options, the owner that may read, the end of a stream, errors.
//! - `table`, `reaper`: the streams by name, and one task that ends and forgets them in time.
//! - `kept_stream`: one stream: its events, its end, and its hub while it is read.
//! - `store`: the encoded events in compact form.
//! - `events`, `lock`: events for operators, and a lock that a panic does not poison.
//!
//! ```text
//!  StreamSender::send ─▶ kept_stream ─▶ store ◀─page─┐ events that are no longer in the ring
//!                             └─▶ hub (ring, while there are readers) ◀─cursor─ body
//! ```
//!
//! Invariants:
//! 1. A stream ends, and a reader enters or leaves, under the lock of the stream. So no stream is abandoned while it has
//!    a reader.
//! 2. No lock is held while a waker is called, a producer is called or polled, or a task is aborted.
//! 3. A stream has a hub if and only if it has readers.
//! 4. A stream in the table is in the queue of checks once.

mod builder;
mod end;
mod error;
mod events;
mod handle;
mod kept_stream;
mod lock;
mod owner;
mod reaper;
mod sender;
mod store;
mod streams;
mod table;

pub use builder::StreamsBuilder;
pub use end::StreamEnd;
pub use error::StreamError;
pub use handle::StreamHandle;
pub use owner::Owner;
pub use sender::StreamSender;
pub use streams::{Streams, StreamsStats};

// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
