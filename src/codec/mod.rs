//! Gathered I/O for any asynchronous reader and writer: tokio's sockets, TLS, pipes.
//!
//! | I want to | use |
//! |---|---|
//! | write many pieces by few calls | [`Writer`] |
//! | read into pool memory, and take bytes without copying | [`Reader`] |
//! | exchange messages of a `tokio_util` codec | [`Framed`] |
//!
//! ```text
//!  your pieces ──▶ Writer ──▶ one write of up to 1024 pieces   (or one flat buffer, for TLS)      ──▶ inner writer
//!                  bounded; flushed by you, by size, or at the end of the turn
//!
//!  inner reader ──▶ pool memory, as much as one read returns ──▶ Reader ──▶ Bytes without a copy
//!
//!  messages in ──▶ Framed: all of a read, then one write ──▶ messages out
//! ```
//!
//! Sockets of [`net`](crate::net) gather by themselves; they need at most a [`Framed`].
//!
//! # Where it is slower
//!
//! * A single piece for each flush gains nothing, and costs a lock and, for a slice, a copy.
//! * For many tiny pieces tokio's `BufWriter` gains as much and costs a few nanoseconds for each. This writer costs
//!   some tens of nanoseconds, because of its lock, the pool and the end of the turn.
//! * Pieces of 16 KiB and more gain little, because the call costs little beside them. As slices they are also copied.
//! * A caller that has all slices at once and calls `write_vectored` needs no adapter.
//! * Over TLS the bytes are copied into records, so the record gathers them, as with any buffered writer.
//! * Flushing at the end of the turn costs one pass through the runtime, and a second one to see that no write follows:
//!   a caller that waits after each burst waits longer than with a flush.
//! * A reader copies nothing, so a small read occupies a lease of at least 4 KiB for as long as its bytes live.

mod adaptive_size;
mod buffer_cache;
mod framed;
mod reader;
mod shared;
mod write_buffer;
mod writer;

pub use framed::Framed;
pub use reader::{ReadVectored, Reader};
pub use write_buffer::Shape;
pub use writer::{Writer, WriterBuilder};
