//! Files.
//!
//! ```text
//!  root     a directory beneath which paths are opened, and nothing outside of it
//!  status   which file this is and which version of it
//! ```

pub(crate) mod root;
mod status;

pub use root::{Opened, Root};
pub use status::Status;
