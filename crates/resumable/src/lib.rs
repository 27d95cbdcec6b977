//! Streams of events with a key, which outlive their readers.
//!
//! - `streams`: the streams by key, in this process. `shared_streams`: the same with logs, which other instances share.
//! - `handle`, `sender`: one stream, for its readers and for its producer.
//! - `stream_log`: the contract of the logs. `disk/`: logs in a directory.
//! - `builder`, `owner`, `end`, `error`: options, the owner that may read, the end of a stream, errors.
//! - `table`, `reaper`: the streams by name, and one task that ends and forgets them in time.
//! - `kept_stream`: one stream: its events, its end, and its hub while it is read.
//! - `store`: the encoded events in compact form.
//! - `events`, `lock`: events for operators, and a lock that a panic does not poison.
//! - `logged`, `kept_log`, `log_task`: the part of a stream that its log does not have yet, and the task between the two.
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
//! 4. An event of a stream with a log is published after the log has it, by the number that it has there.
//! 5. A stream gets the claim of its log once. If it loses it, another stream takes its place in the table.
//! 6. A stream in the table is in the queue of checks once.

mod builder;
#[cfg(all(unix, feature = "disk"))]
mod disk;
mod end;
mod error;
mod events;
mod handle;
mod kept_log;
mod kept_stream;
mod lock;
mod log_task;
mod logged;
mod owner;
mod reaper;
mod sender;
mod shared_streams;
mod store;
mod stream_log;
mod streams;
mod table;

pub use builder::StreamsBuilder;
#[cfg(all(unix, feature = "disk"))]
pub use disk::DiskStreams;
pub use end::StreamEnd;
pub use error::{SharedError, StreamError};
pub use handle::StreamHandle;
pub use owner::Owner;
pub use sender::StreamSender;
pub use shared_streams::SharedStreams;
pub use stream_log::{LogPage, LogStatus, StreamLog, StreamLogError, StreamLogs};
pub use streams::Streams;
pub use table::StreamsStats;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
