//! The runtime below the streams: the ring and its limits, the pool, cores, the end of a runtime, and a comparison with
//! tokio's streams.

mod containers;
mod cores;
mod differential;
mod driver;
mod injectors;
mod pool;
mod saturation;
mod teardown;
