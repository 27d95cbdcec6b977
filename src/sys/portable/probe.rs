//! The answers of the probes: nothing that only Linux has is used.

use std::io;

use super::unsupported;

/// The replacement of `openat2`.
pub(super) const WITHOUT_OPENAT2: &str = "each component of a path is opened from the directory before it";

/// Returns whether a probe may succeed later.
pub(super) fn is_for_now(_: &io::Error) -> bool {
    false
}

/// Returns the name of the system.
pub(super) fn system() -> String {
    format!("{}, portable build", std::env::consts::OS)
}

pub(super) fn sendfile() -> io::Result<()> {
    Err(unsupported("files are not sent inside the kernel"))
}

pub(super) fn read_nowait() -> io::Result<()> {
    Err(unsupported("no read can refuse to wait"))
}

pub(super) fn openat2() -> io::Result<()> {
    Err(unsupported("no call resolves a whole path beneath a directory"))
}

pub(super) fn cachestat() -> io::Result<()> {
    Err(unsupported("cached pages are not queried"))
}

pub(super) fn mapping() -> io::Result<()> {
    Err(unsupported("files are not mapped"))
}

pub(super) fn io_uring() -> io::Result<()> {
    Err(unsupported("there is no io_uring"))
}

pub(super) fn splice() -> io::Result<()> {
    Err(unsupported("bytes are not moved inside the kernel"))
}

pub(super) fn copy_file_range() -> io::Result<()> {
    Err(unsupported("files are not copied inside the kernel"))
}
