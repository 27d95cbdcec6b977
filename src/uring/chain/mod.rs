//! Chains: several operations on files as one piece of work, and what became of each.
//!
//! ```text
//!  build    Chain: steps in order, the file and the directory they mean
//!  options  how a step opens a file
//!  report   what became of the steps; the error that names the one it failed at
//! ```

mod build;
mod options;
mod report;

pub use build::Chain;
pub use options::OpenOptions;
pub use report::{Error, Report, Way};
