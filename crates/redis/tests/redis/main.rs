//! The log of a fleet of hubs. Each test starts its own redis-server.

mod ends;
mod errors;
mod fake;
mod faults;
mod log;
mod replay;
mod resume;
mod server;
mod stream_logs;
mod streams;
