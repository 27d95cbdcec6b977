//! Memory: pool leases, queues of bytes to send, and the origin of addresses.
//!
//! ```text
//!  pool     leases of pool memory, frozen into Bytes without a copy
//!  slab     blocks behind the leases, and which of them are frozen
//!  origin   address → origin of its bytes: a mapped file or a pool block
//!  queue    bytes to send: copied bytes, shared bytes, pieces of files
//! ```

pub(crate) mod origin;
pub(crate) mod pool;
pub(crate) mod queue;
mod slab;

pub use pool::{Lease, lease, lease_with_headroom};
