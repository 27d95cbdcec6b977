//! Compressed bodies and responses: the same bytes once decoded, and each of them at once.
#![cfg(feature = "compress")]

mod bodies;
mod clients;
mod decode;
mod layer;
mod memory;
mod served;
