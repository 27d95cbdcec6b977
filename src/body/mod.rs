//! Response bodies and body adapters, one per file.
//!
//! ```text
//!  ending   a response that ends in order at shutdown
//!  batch    any body, its ready frames merged
//!  file     FileBody: a file, a range of it, or several, with a length that is kept
//!  open     OpenFile: a regular file and what responses say about it
//!  reader   where the next frame of a file comes from, without ever waiting for a disk on a runtime thread
//! ```
//!
//! The contract of a body here:
//!
//! 1. A data frame is one contiguous piece. hyper keeps such a piece by reference and passes its address on, so a stream
//!    that knows the address can send it by another way than copying; a piece made of several slices may be reordered
//!    by `chunks_vectored` ([hyper#3650](https://github.com/hyperium/hyper/issues/3650)).
//! 2. A body waits only for its source. What is ready is handed over at once; waiting for more is the stream's affair,
//!    which alone knows what else is being written in this turn.
//! 3. A body that cannot go on as promised fails. It never ends early, so the peer sees that something is missing.
//!
//! hyper polls a body only while it has room to write, so a slow reader stops its body by itself; nothing here buffers
//! without a bound.
//!
//! For relays that move messages as bytes, without hyper, there is [`head`]. Who a request is, and which way its answer goes, is
//! the matter of tower layers: [`layer`].

mod batch;
#[cfg(feature = "fs")]
pub(crate) mod file;
mod graceful_close;
#[cfg(feature = "fs")]
mod open;
#[cfg(feature = "fs")]
mod reader;

pub use batch::Batch;
#[cfg(feature = "fs")]
pub use file::FileBody;
pub use graceful_close::GracefulClose;
#[cfg(feature = "fs")]
pub use open::OpenFile;
#[cfg(feature = "fs")]
pub(crate) use open::Tag;
