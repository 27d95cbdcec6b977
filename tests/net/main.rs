//! `net`: streams and listeners of both families, how they connect, receive and send, and what they report.

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
