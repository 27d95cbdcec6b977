//! Response bodies and body adapters, one per file.
//!
//! ```text
//!  batch    any body, its ready frames merged
//! ```

mod batch;

pub use batch::Batch;
