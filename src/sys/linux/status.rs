//! The status of a file, as [statx(2)](https://man7.org/linux/man-pages/man2/statx.2.html) returns it.

pub(crate) use rustix::fs::{FileType, Statx, StatxTimestamp};
