//! `fs`: files by offset and as streams, chains of operations, replaced files, and dropped futures.

mod cancel;
mod chain;
#[cfg(feature = "body")]
mod crash;
mod file;
mod paths;
mod replace;
mod stream;
