//! Bodies, a directory as a service, and a server: what hyper, axum and tonic are given.
//!
//! ```text
//!  a directory ─▶ files ─▶ body::file ──┐
//!  any body ─────────────▶ body::batch ─┼─frames─▶ hyper ─IoSlice─▶ net::TcpStream
//!  events ──▶ hub ─ring──▶ hub::body ───┤           ▲
//!  any body ─────▶ layer::MeasureBody ──┘           │
//!  net::TcpListener ─▶ serve: one task per connection ┘
//! ```
//!
//! The contract of a body here:
//!
//! 1. A data frame is one contiguous piece. hyper keeps such a piece by reference and passes its address on, so a stream
//!    that knows the address can send it by another way than copying; a piece made of several slices may be reordered
//!    by `chunks_vectored` ([hyper#3650](https://github.com/hyperium/hyper/issues/3650)).
//! 2. A body waits only for its source. What is ready is handed over at once; waiting for more is the stream's affair,
//!    which alone knows what else is being written in this turn.
//! 3. A body that cannot go on as promised fails. It never ends early, so the peer sees that something is missing.
//!
//! hyper polls a body only while it has room to write, so a slow reader stops its body by itself; nothing here buffers
//! without a bound.
//!
//! For relays that move messages as bytes, without hyper, there is [`head`]. Who a request is, and which way its answer goes, is
//! the matter of tower layers: [`layer`].

mod body;
mod ending;
mod files;
mod host;
mod hub;
mod log;
mod serve;
#[cfg(feature = "tls")]
mod tls;

pub mod head;
pub mod layer;

pub use body::{Batch, FileBody, OpenFile};
pub use ending::Ending;
pub use files::{Files, FilesBuilder, FilesFuture};
pub use hub::{Event, EventBody, EventParts, Hub, HubBuilder, SendError, Sent, Slow, Stats, SubscribeError};
#[cfg(feature = "redis")]
pub use log::redis::{Redis, RedisBuilder, RedisError, RedisState};
pub use log::{Log, LogFuture, Replay, ReplayError, Sink};
pub use serve::{
    BodyError, DrainSignal, Drained, Draining, DrainingCores, Limits, Peer, RequestBody, Serve, ServeCores, Serving,
    serve, serve_cores,
};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError, TlsStream};
