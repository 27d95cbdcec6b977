//! Operations on files and sockets, and programs of them, run by a ring or by plain calls with the same outcomes.
//!
//! ```text
//!  chain       chains of steps, as users build them
//!  program     linked operations in order, and their outcomes
//!  step        one operation of a program, until it is done
//!  peer_waits  the peers that a program may wait for without bound
//!  open        open and close
//!  rw          read and write, one piece of memory
//!  vectored    read and write, many pieces
//!  sync        sync, allocate and set length
//!  stat        metadata of a file
//!  path        rename, unlink, link
//!  transfer    splice and send
//!  operation   what all of these are: a plain call and an entry for a ring
//!  target      the file an operation works on; the files that a program opens
//!  outcome     outcomes of steps
//!  submit      entries of operations; the file `submit` beside each module holds its own
//! ```
//!
//! In the portable build there are no entries, and programs run by plain calls.

pub(crate) mod chain;
pub(crate) mod open;
mod operation;
mod outcome;
pub(crate) mod path;
pub(crate) mod peer_waits;
pub(crate) mod program;
pub(crate) mod rw;
pub(crate) mod stat;
pub(crate) mod step;
#[cfg_attr(not(uring), path = "no_submit.rs")]
pub(crate) mod submit;
pub(crate) mod sync;
mod target;
pub(crate) mod transfer;
pub(crate) mod vectored;

pub(crate) use operation::{FileUse, Operation, Waits};
pub(crate) use outcome::Progress;
pub use outcome::StepOutcome;
pub(crate) use target::{Files, Target};
