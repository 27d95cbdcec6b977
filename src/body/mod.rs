//! Response bodies, body adapters, and bodies that are saved into files.
//!
//! | I want to | use |
//! |---|---|
//! | merge the small frames of a body | [`Batch`] |
//! | compress a body | `Compress` (feature `compress`), [`ContentCoding`] |
//! | respond with a file, a range of it, or several | [`FileBody`] |
//! | pass on the response of another server | `DirectBody`, from `Proxy` of the crate `millstream-proxy` |
//! | respond with the bytes of a reader | [`from_reader`](from_reader()) |
//! | answer range requests for anything that can be read at an offset | [`ranges`](ranges()), [`ReadAt`] |
//! | save a body into a file | [`save`](save()), [`Save`] |
//! | fail a body that is too slow | [`min_rate`](min_rate()) |
//! | end an endless response when the server drains | [`GracefulClose`] |
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

// Modules:
//  graceful_close   ends a response in order at shutdown
//  batch            any body, its ready frames merged
//  content_coding   br, zstd and gzip, and which of them a client prefers
//  compress         any body, compressed
//  attach           bodies that another task can write to the stream of the client
//  direct           DirectBody: its bytes are in a socket, and may be moved to another
//  event_body       EventBody: events, which a hub can write
//  moved            events that leave with their connection, and go on elsewhere
//  file             FileBody: a file, a range of it, or several, of exact length
//  reader           reads the next frame of a file without blocking a runtime thread
//  from_reader      a body from an AsyncRead
//  ranges           ranges of anything that can be read at an offset
//  save             a body into a file, with limits, digests and progress
//  min_rate         any body, which fails if it is too slow
//  silence          the time in which a peer sends nothing, and its timer
//  length_limit     the error of a body over its limit
//  validators       entity tag and Last-Modified of a file

pub(crate) mod attach;
mod batch;
#[cfg(feature = "compress")]
mod compress;
mod content_coding;
pub(crate) mod direct;
pub(crate) mod event_body;
#[cfg(feature = "fs")]
pub(crate) mod file;
mod from_reader;
mod graceful_close;
pub(crate) mod length_limit;
mod min_rate;
pub(crate) mod moved;
pub(crate) mod ranges;
#[cfg(feature = "fs")]
pub(crate) mod reader;
#[cfg(feature = "fs")]
mod save;
pub(crate) mod silence;
#[cfg(feature = "fs")]
mod validators;

pub use batch::Batch;
#[cfg(feature = "compress")]
pub use compress::Compress;
pub use content_coding::ContentCoding;
pub use direct::DirectBody;
#[cfg(feature = "fs")]
pub use file::FileBody;
pub use from_reader::{ReaderBody, from_reader};
pub(crate) use graceful_close::EndSignal;
pub use graceful_close::GracefulClose;
pub use min_rate::{MinRate, MinRateError, min_rate};
pub use moved::{MovedBody, ResumedBody};
pub use ranges::{Ranges, RangesBody, ReadAt, ranges};
#[cfg(feature = "fs")]
pub use save::{Save, SaveError, Saved, save};
#[cfg(feature = "fs")]
pub(crate) use validators::Tag;
