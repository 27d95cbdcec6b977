//! `net`: streams and listeners of TCP and Unix sockets: connecting, receiving, sending and statistics.

#[cfg(feature = "client")]
mod connector;
mod counts;
mod halves;
mod high_mark;
mod numbers;
mod pace;
mod profile;
mod send_strategy;
mod shutdown;
mod stall;
mod stream;
mod unix;
