//! `sse::log::redis`: the log of a fleet of hubs. Each test starts its own redis-server.
#![cfg(feature = "redis")]

mod ends;
mod faults;
mod log;
mod replay;
mod resume;
