//! Header lines put into a message that is relayed as bytes.
//!
//! A relay that moves HTTP/1 between two sockets without parsing it can still add a header line: an [`Injector`] is shown
//! each piece as it comes off one socket and says what to write to the other, in slices for one vectored write. Neither
//! head nor body is copied, and nothing is allocated.
//!
//! ```text
//!  piece ─▶ Injector::feed ─▶ Output: before │ lines │ after ─▶ one vectored write
//!            scan: where does                ▲
//!            the head end?                   in front of the empty line that ends the head
//! ```
//!
//! The contract:
//!
//! 1. What comes out is what went in, with the lines in front of the empty line that ends the first head, and nothing
//!    else. How the stream was cut into pieces makes no difference.
//! 2. At most one byte is held back, a CR that may begin that empty line. [`Injector::held`] shows it, so that nothing is
//!    lost when the relay ends or gives up.
//! 3. A piece is taken whole or, with an error, not at all.
//! 4. Only the head is looked at. Where a body ends is told by fields that are not read here, so where the next message
//!    begins must be told by the caller: [`Injector::reset`].

mod injector;
mod scan;

pub use injector::{Error, Injector, Output};
