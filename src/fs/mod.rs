//! Files.
//!
//! ```text
//!  root     a directory beneath which paths are opened, and nothing outside of it
//!  status   which file this is and which version of it
//!  job      work that waits for a disk, on the blocking pool
//! ```

pub(crate) mod job;
pub(crate) mod root;
mod status;

pub use root::{Opened, Root};
pub use status::Status;
