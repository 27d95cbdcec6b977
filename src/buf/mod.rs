//! Memory: leases from a pool, and what the streams know about addresses.
//!
//! ```text
//!  pool     leases of pool memory, frozen into Bytes without a copy
//!  slab     the blocks that leases are made of, and which of them are frozen
//!  origin   address → where its bytes came from: a mapped file, a block of the pool
//!  queue    what waits to be sent: copied bytes, kept bytes, pieces of files
//! ```

pub(crate) mod origin;
pub(crate) mod pool;
pub(crate) mod queue;
mod slab;

pub use pool::{Lease, lease, lease_with_headroom};
pub use queue::{Front, Queue};
