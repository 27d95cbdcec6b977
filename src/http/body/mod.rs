//! Response bodies.
//!
//! ```text
//!  file     FileBody: a file, a range of it, or several, with a length that is kept
//!  open     OpenFile: a regular file and what responses say about it
//!  reader   where the next frame comes from, without ever waiting for a disk on a runtime thread
//! ```

pub(crate) mod file;
mod open;
mod reader;

pub use file::FileBody;
pub use open::OpenFile;
