//! Policies: how large a buffer should be, how fast bytes may go, which path is well. Pure: the clock is an argument, nothing is called.
//!
//! ```text
//!  breaker  whether a path may be used, by how it did
//!  elastic  the size of a buffer that one side fills and another empties
//!  mark     how much may wait for one reader
//!  pace     a token bucket: how many bytes may go now, and when it is worth asking again
//! ```

pub(crate) mod breaker;
pub(crate) mod elastic;
pub(crate) mod mark;
pub(crate) mod pace;
