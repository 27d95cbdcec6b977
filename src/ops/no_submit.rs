//! Replaces `submit` in builds without io_uring: no operation has an entry.

pub(crate) trait Submit {}

impl<T> Submit for T {}
