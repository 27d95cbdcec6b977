//! The io_uring driver against a scripted kernel, and against plain calls: see `src/ring/tests/fuzz.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| millstream::fuzzing::ring(data));
