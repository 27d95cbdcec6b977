//! hyper services that stream.
//!
//! ```text
//!  body     response bodies: files
//!  files    a directory as a service
//! ```

mod body;
mod files;

pub use body::{FileBody, OpenFile};
pub use files::{Files, FilesBuilder, FilesFuture};
