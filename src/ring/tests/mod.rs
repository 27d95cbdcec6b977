//! Tests of the driver, and what they run it on.
//!
//! ```text
//!  fake      a scripted kernel
//!  sqe       its reading of entries
//!  contents  bytes to write
//!  driver    tests on it
//!  fuzz      the same with scripts and programs from the bytes of a fuzzer
//!  both      a program by plain calls and by a ring of the kernel
//! ```

#[cfg(all(test, not(millstream_loom)))]
mod both;
mod contents;
#[cfg(test)]
mod driver;
#[cfg_attr(not(test), expect(dead_code, reason = "a fuzzer needs a part of it"))]
mod fake;
#[cfg(fuzzing)]
pub(crate) mod fuzz;
mod sqe;
