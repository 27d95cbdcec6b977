//! The heap of the C library.

/// Does nothing: returning unused pages is a call of glibc.
pub(crate) fn trim() {}
