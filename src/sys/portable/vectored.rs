//! Vectored calls on files.

/// Maximum number of slices per call.
pub(crate) const PIECES_MAX: usize = 1024;
