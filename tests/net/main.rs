//! `net`: streams and listeners of TCP and Unix sockets: connecting, receiving, sending and statistics.

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "client")]
mod connector;
mod counts;
mod elastic;
mod multishot;
mod numbers;
mod pace;
mod path;
mod profile;
mod stall;
mod stream;
mod unix;
