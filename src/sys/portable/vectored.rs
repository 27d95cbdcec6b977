//! Calls on files with several pieces of memory, of which each takes one, and calls on their length. **All of them may
//! wait for the disk.**

/// Maximum number of slices per call.
pub(crate) const PIECES_MAX: usize = 1024;

#[cfg(feature = "fs")]
pub(crate) use super::pieces::*;
