//! The runtime beneath the streams: the ring and its limits, the pool, cores, the end of a runtime, and streams beside
//! tokio's.

#[path = "../support/mod.rs"]
mod support;

mod cores;
mod differential;
mod driver;
mod injectors;
mod pool;
mod saturation;
mod teardown;
