//! Response bodies and body adapters, one per file.

pub mod batch;
