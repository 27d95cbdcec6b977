//! Files.
//!
//! ```text
//!  root        a directory beneath which paths are opened, and nothing outside of it
//!  status      which file this is and which version of it
//!
//!  file        an open file, read and written at offsets
//!  open        how it is opened, at once where that is possible
//!  reader      front to back: bytes ahead of their use   ┐ what these are made of:
//!  writer      front to back: pieces behind their use    ┘ ahead, reads under way; jump, a seek;
//!                                                          cached, reads from the page cache
//!
//!  replace     new contents in one step: bytes or a stream
//!  prepend     a header before the contents: by a new file, in place, or by moving blocks
//!  append      bytes at the end
//!  target      the name in its directory, and what has it   ┐
//!  draft       a new file until it has its name             │
//!  keep        what it takes over from the old one          │ what these
//!  body        the old contents, moved into it              │ are made of
//!  intake      a stream, in pieces worth a trip to the disk │
//!  work        all the steps as one job                     │
//!  durability  what is promised about a power cut           │
//!  error       which step failed, for which path, and why   ┘
//! ```

mod append;
mod body;
pub(crate) mod cached;
mod chunk_batch;
mod durability;
mod error;
mod file;
mod open;
mod pending_seek;
mod prepend;
mod preserve;
pub(crate) mod read_ahead;
mod reader;
mod replace;
pub(crate) mod root;
mod status;
mod target;
mod temp_file;
mod work;
mod writer;

pub use append::{Append, append};
pub use body::Moved;
pub use durability::Durability;
pub use error::{Error, Step};
pub use file::File;
pub use prepend::{Prepend, Prepended, Strategy, prepend};
pub use preserve::Preserve;
pub use reader::{Chunks, Reader};
pub use replace::{Replace, replace};
pub use root::{Opened, Root};
pub use status::Status;
pub use writer::Writer;

pub use crate::uring::chain::OpenOptions;

/// Several operations on files as one piece of work.
pub mod chain {
    pub use crate::uring::Outcome;
    pub use crate::uring::chain::{Chain, Error, Report, Way};
}
