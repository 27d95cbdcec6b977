//! io_uring: one ring, and how it comes about.
//!
//! ```text
//!  setup   what a ring should be like, and stepping down until the kernel agrees; the reasons for a "no"
//!  ring    submission, completion, registration
//! ```

mod ring;
mod setup;

pub(crate) use ring::{Completion, Uring};
pub(crate) use setup::Setup;
