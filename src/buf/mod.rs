//! Pool memory, which the streams of this crate send without copying it.
//!
//! | I want to | use |
//! |---|---|
//! | build bytes in the pool | [`lease`], then [`Lease::freeze`] |
//! | put a header in front of them later | [`lease_with_headroom`], [`Lease::prepend`] |

// Modules:
//  pool     leases of pool memory, frozen into Bytes without a copy
//  slab     blocks behind the leases, and which of them are frozen
//  origin   address → origin of its bytes: a mapped file or a pool block
//  queue    bytes to send: copied bytes, shared bytes, pieces of files
//  charge   bytes held elsewhere that count for the budget of the queues

#[cfg(any(feature = "server", feature = "sse"))]
pub(crate) mod charge;
pub(crate) mod origin;
pub(crate) mod pool;
pub(crate) mod queue;
mod slab;

pub use pool::{Lease, lease, lease_with_headroom};
