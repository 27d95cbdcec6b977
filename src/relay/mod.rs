//! Header lines added to messages that are relayed as bytes.
//!
//! A relay that moves HTTP/1 between two sockets without parsing it can still add header lines. It feeds each piece
//! that it reads to an [`Injector`] and writes the returned slices with one vectored write. Neither head nor body is
//! copied, and nothing is allocated.
//!
//! ```text
//!  piece ─▶ Injector::feed ─▶ Output: before │ lines │ after ─▶ one vectored write
//!            Scan finds the          ▲
//!            end of the head         before the empty line that ends the head
//! ```
//!
//! 1. The output is the input plus the lines, however the stream is cut into pieces.
//! 2. At most one byte is held back, a CR that may begin that empty line; see [`Injector::held`].
//! 3. A piece is taken whole or, with an error, not at all.
//! 4. Only the head is parsed. The caller marks the start of the next message with [`Injector::reset`].

mod error;
mod injector;
mod scan;

pub use error::InjectError;
pub use injector::{Injector, Output};
