//! Compressed bodies and responses: the same bytes once decoded, and each of them at once.
#![cfg(feature = "compress")]

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod decode;
mod memory;
