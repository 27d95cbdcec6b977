//! `sse::log::redis`: the log of a fleet of hubs, each test with a redis-server of its own.
#![cfg(feature = "redis")]

#[path = "../support/mod.rs"]
mod support;

mod ends;
mod faults;
mod log;
mod replay;
mod resume;
