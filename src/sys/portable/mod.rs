//! The twin of `sys` for systems other than Linux: the same functions, by std, tokio, socket2 and cap-primitives, and
//! poll(2) by rustix. It promises the same answers, not the same speed. `--cfg millstream_portable` chooses it on
//! Linux, where the tests of the crate run by it.
//!
//! Functions that exist only on Linux return a neutral value (no statistics, no window of memory, `WouldBlock` for
//! reads that must not wait), or fail with `ErrorKind::Unsupported` and a message that begins with "portable build".
//! Their callers already handle kernels that lack a feature, so they need no extra code.
//!
//! ```text
//!  borrow    descriptors as files of std
//!  fd        descriptors on Windows
//!  open      files beneath a directory, component by component, by cap-primitives
//!  pieces    vectored calls on files
//!  position  calls at the position of a file
//!  retry     calls that were interrupted
//! ```
//!
//! The other modules are named as their twins.

#[path = "../caps.rs"]
pub(crate) mod caps;
#[cfg_attr(unix, path = "../fd.rs")]
pub(crate) mod fd;
#[path = "../lock.rs"]
pub(crate) mod lock;
#[path = "../options.rs"]
mod options;
#[path = "../receive.rs"]
pub(crate) mod receive;
#[path = "../tcp_info.rs"]
pub(crate) mod tcp_info;

#[cfg(feature = "fs")]
mod borrow;
pub(crate) mod call;
pub(crate) mod clock;
pub(crate) mod cpu;
#[cfg(feature = "fs")]
pub(crate) mod dir;
pub(crate) mod errno;
pub(crate) mod exit;
#[cfg(feature = "fs")]
pub(crate) mod file;
pub(crate) mod flags;
#[cfg(feature = "server")]
pub(crate) mod heap;
pub(crate) mod map;
#[cfg(feature = "files")]
pub(crate) mod memory;
#[cfg(feature = "fs")]
pub(crate) mod mounts;
#[cfg(feature = "fs")]
mod open;
#[cfg(feature = "fs")]
pub(crate) mod page_cache;
#[cfg(feature = "fs")]
pub(crate) mod path;
#[cfg(feature = "fs")]
pub(crate) mod peer;
#[cfg(feature = "fs")]
mod pieces;
#[cfg(feature = "fs")]
mod position;
mod probe;
mod retry;
pub(crate) mod socket;
#[cfg(feature = "fs")]
pub(crate) mod status;
pub(crate) mod tcp;
pub(crate) mod thread;
pub(crate) mod transfer;
#[cfg(unix)]
pub(crate) mod unix;
pub(crate) mod uring;
pub(crate) mod vectored;
pub(crate) mod watch;

/// Returns the error of a function that this build does not support.
fn unsupported(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, format!("portable build: {what}"))
}
