//! Response bodies and body adapters.
//!
//! ```text
//!  graceful_close   ends a response in order at shutdown
//!  batch            any body, its ready frames merged
//!  file             FileBody: a file, a range of it, or several, of exact length
//!  reader           reads the next frame of a file without blocking a runtime thread
//!  validators       entity tag and Last-Modified of a file
//! ```
//!
//! Contract of the bodies:
//!
//! 1. A data frame is one contiguous piece. hyper keeps it by reference and passes its address on, so a stream that
//!    knows the address can avoid the copy. `chunks_vectored` may reorder a piece made of several slices
//!    ([hyper#3650](https://github.com/hyperium/hyper/issues/3650)).
//! 2. A body returns ready data at once. Only the stream waits for more, because it knows what else is written in this
//!    turn.
//! 3. A body that cannot deliver its full length fails. It never ends early, so the peer detects that bytes are
//!    missing.
//!
//! hyper polls a body only while it has room to write, so a slow reader stops its body. All buffers are bounded.

mod batch;
#[cfg(feature = "fs")]
pub(crate) mod file;
mod graceful_close;
#[cfg(feature = "fs")]
pub(crate) mod reader;
#[cfg(feature = "fs")]
mod validators;

pub use batch::Batch;
#[cfg(feature = "fs")]
pub use file::FileBody;
pub use graceful_close::GracefulClose;
#[cfg(feature = "fs")]
pub(crate) use validators::Tag;
