//! io_uring: one ring, and how it comes about.
//!
//! ```text
//!  setup      what a ring should be like, and stepping down until the kernel agrees; the reasons for a "no"
//!  ring       submission, completion, registration
//!  provided   buffers that the kernel fills when something arrives
//! ```

mod provided;
mod ring;
mod setup;

pub(crate) use provided::{Chunk, Provided};
pub(crate) use ring::{Completion, Uring};
pub(crate) use setup::Setup;
