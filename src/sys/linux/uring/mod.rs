//! One io_uring and its creation.
//!
//! ```text
//!  setup      requested properties of a ring, reduced until the kernel accepts them; reasons for a "no"
//!  ring       submission, completion, registration
//!  provided   buffers that the kernel fills when bytes arrive
//! ```

#[cfg(uring_net)]
mod provided;
mod ring;
mod setup;

#[cfg(uring_net)]
pub(crate) use provided::{Chunk, Provided};
pub(crate) use ring::{Completion, Uring};
pub(crate) use setup::{Refused, Setup};
