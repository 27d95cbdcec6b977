//! Response bodies and body adapters, one per file.
//!
//! ```text
//!  batch    any body, its ready frames merged
//!  file     FileBody: a file, a range of it, or several, with a length that is kept
//!  open     OpenFile: a regular file and what responses say about it
//!  reader   where the next frame of a file comes from, without ever waiting for a disk on a runtime thread
//! ```

mod batch;
pub(crate) mod file;
mod open;
mod reader;

pub use batch::Batch;
pub use file::FileBody;
pub use open::OpenFile;
pub(crate) use open::Tag;
