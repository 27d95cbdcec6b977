//! Chains: several operations on files as one unit of work, with an outcome for each.
//!
//! ```text
//!  build    Chain: the steps in order, their file and directory
//!  options  how a step opens a file
//!  report   outcomes of the steps; the error that names the failed step
//! ```

mod build;
mod options;
mod report;

pub use build::Chain;
pub use options::OpenOptions;
pub use report::{ChainError, ChainPath, ChainReport};
