//! Logs of the streams of [`SharedStreams`](millstream_resumable::SharedStreams), each in two keys of Redis.
//!
//! ```text
//!  PREFIX:NAME           a hash: epoch, token and end of the claim, time of the last readers, stop, end
//!  PREFIX:NAME:events    a stream: event n has the id (n+1)-0
//! ```
//!
//! - `builder`: options.
//! - `redis_streams`: the logs, opened by name.
//! - `redis_stream`: one log.
//! - `scripts`: its calls, each of which is one step for Redis, and checks the claim.
//! - `pushing_link`: one connection for all calls and notifications of an instance.
//! - `news`: who is told of new events.

mod builder;
mod news;
mod pushing_link;
mod redis_stream;
mod redis_streams;
mod scripts;

pub use builder::RedisStreamsBuilder;
pub use redis_streams::RedisStreams;
