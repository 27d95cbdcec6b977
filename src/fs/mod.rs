//! File operations by io_uring, inside any tokio runtime, or on the blocking pool.
//!
//! | I want to | use |
//! |---|---|
//! | read, rename, copy or remove a whole file | [`read`](read()), [`read_to_string`], [`rename`], [`copy`](copy()), [`remove`] |
//! | read and write at offsets | [`File`] |
//! | read a file from front to back | [`FileReader`], as a stream [`Chunks`] |
//! | write a file from front to back | [`FileWriter`] |
//! | replace the contents in one step | [`replace`](replace()), [`Replace`] |
//! | put a header before the contents | [`prepend`](prepend()), [`Prepend`] |
//! | add bytes at the end | [`append`](append()), [`Append`] |
//! | choose what survives a power cut | [`Durability`] |
//! | open paths beneath a directory, and nothing outside of it | [`Root`] |
//! | run several operations as one | [`Chain`](chain::Chain) |

// Modules:
//  root         a directory beneath which paths are opened, and nothing outside of it
//  directory    the names in one of its directories
//  metadata     identity and version of a file
//
//  file         an open file, read and written at offsets
//  open         opens a file, at once if possible
//  reader       sequential reads with read-ahead         ┐ built on read_ahead, pending_seek
//  writer       sequential writes, gathered into pieces  ┘ and cached (reads from the page cache)
//
//  paths        whole files by their paths: read, remove, rename, copy
//  replace      new contents in one step: bytes, a stream, or another file
//  prepend      a header before the contents: by a new file, in place, or by moving blocks
//  append       bytes at the end
//  change       options that all of them have                  ┐
//  target       a name in its directory, and the file there     │
//  receive      contents that arrive while others are written   │
//  sink         a new file, or the end of an existing one       │
//  temp_file    a new file until it has its name                │
//  preserve     metadata taken over from the old file           │ internal
//  body         moves the old contents into the new file        │
//  chunk_batch  gathers a stream into pieces for the disk       │
//  work         all steps as one job                            │
//  durability   guarantees about power cuts                     │
//  error        the failed step, the path, and the cause        ┘

mod append;
mod body;
pub(crate) mod cached;
mod change;
mod chunk_batch;
pub(crate) mod directory;
mod durability;
mod error;
mod file;
mod metadata;
mod open;
mod paths;
mod pending_seek;
mod prepend;
mod preserve;
pub(crate) mod read_ahead;
mod reader;
pub(crate) mod receive;
mod replace;
mod root;
mod sink;
mod target;
mod temp_file;
mod work;
mod writer;

pub use append::{Append, append};
pub use body::Moved;
pub use durability::Durability;
pub use error::{Error, Step};
pub use file::File;
pub use metadata::Metadata;
pub use paths::{copy, read, read_to_string, remove, rename};
pub use prepend::{Prepend, PrependStrategy, Prepended, prepend};
pub use preserve::Preserve;
pub use reader::{Chunks, FileReader};
pub use replace::{Replace, replace};
pub use root::Root;
pub use writer::FileWriter;

pub use crate::ops::chain::OpenOptions;

/// Several file operations as one unit of work.
pub mod chain {
    pub use crate::ops::StepOutcome;
    pub use crate::ops::chain::{Chain, ChainError, ChainPath, ChainReport};
}
