//! Gathering for what is not a stream of ours: tokio's sockets, TLS, pipes, whatever reads and writes asynchronously.
//!
//! ```text
//!  your pieces ──▶ Writer ──▶ one write of up to 1024 pieces   (or one flat buffer, for TLS)      ──▶ inner writer
//!                  bounded; flushed by you, by size, or at the end of the turn
//!
//!  inner reader ──▶ pool memory, read at once as much as there is ──▶ Reader ──▶ Bytes without a copy
//!
//!  messages in ──▶ Framed: all of a read, then one write ──▶ messages out
//! ```
//!
//! Sockets that [`net`](crate::net) has do this by themselves: wrap them in a [`Framed`] at most.
//!
//! # Where it loses
//!
//! * A single piece for each flush gains nothing, and pays for a lock and, if it is a slice, for a copy.
//! * Many tiny pieces gain as much by tokio's `BufWriter`, which takes them in a few nanoseconds each where this takes some
//!   tens: it has no lock, no pool and no end of the turn.
//! * Long pieces, 16 KiB and more, gain little: the call is small beside them. As slices they are copied on top of that.
//! * Whoever has all slices at hand at once and calls `write_vectored` by hand has less to do than any adapter.
//! * Over TLS the bytes are copied into records anyway; what gathers is the record, as in any buffered writer.
//! * Leaving at the end of the turn costs a pass through the runtime, and a second one to see that nothing follows: for a
//!   caller that waits after each burst this takes longer than a flush.
//! * A reader that is given little at a time reads a little into a lease of at least 4 KiB, and copies nothing: keep the
//!   bytes for long, and you keep the lease.

mod buffer_cache;
mod elastic;
mod framed;
mod reader;
mod shared;
mod write_buffer;
mod writer;

pub use framed::Framed;
pub use reader::{ReadVectored, Reader};
pub use write_buffer::Shape;
pub use writer::{Builder, Writer};
