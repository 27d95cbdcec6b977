//! `fs`: files by offset and as streams, chains of operations, files that are replaced, and futures that are
//! dropped.

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod chain;
mod file;
mod replace;
mod stream;
