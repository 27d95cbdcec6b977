//! One io_uring and its creation.
//!
//! ```text
//!  setup      requested properties of a ring, reduced until the kernel accepts them; reasons for a "no"
//!  ring       submission, completion, registration
//! ```

mod ring;
mod setup;

pub(crate) use ring::{Completion, Uring};
pub(crate) use setup::{Refused, Setup};
