//! What benches, examples and versus measure with: load generators and statistics.

#[cfg(feature = "http")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod closed_loop;
#[cfg(feature = "http")]
pub mod latencies;
pub mod statistics;
