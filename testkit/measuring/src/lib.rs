//! What benches, examples and versus measure with: load generators and statistics.

#[cfg(target_os = "linux")]
pub mod closed_loop;
pub mod statistics;
