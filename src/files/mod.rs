//! A service for the files of a directory.
//!
//! ```text
//!  request ─▶ path ─▶ cache ─▶ entry ─▶ encoding ─▶ conditional ─▶ range ─▶ respond ─▶ response
//!            (text)   (load,   (file,   (which      (304, 412)     (206,    (heads made
//!                     validate) heads)   variant)                   416)     beforehand)
//! ```
//!
//! A cached, valid entry is answered without waiting, without a system call and nearly without allocating. An uncached
//! file is opened once for all waiting requests.

mod absent;
mod builder;
mod cache;
mod conditional;
mod encoding;
mod entry;
mod multipart;
mod path;
mod range;
mod respond;
mod service;

pub use builder::FilesBuilder;
pub use service::{Files, FilesFuture};
