//! Measuring tools of benches, examples and versus: load generators and statistics.

#[cfg(feature = "http")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod closed_loop;
#[cfg(target_os = "linux")]
pub mod cpus;
#[cfg(feature = "http")]
pub mod latencies;
pub mod noise;
pub mod random;
#[path = "../../../examples/common/report.rs"]
pub mod report;
#[cfg(feature = "http")]
pub mod response;
#[cfg(target_os = "linux")]
pub mod socket;
pub mod statistics;
