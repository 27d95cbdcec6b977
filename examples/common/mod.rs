//! What `serve` and `stock` share, so that comparing the two compares the I/O below them and nothing else.

mod bodies;
mod options;
mod reply;

#[allow(unused_imports, reason = "stock has no more options")]
pub(crate) use options::More;
pub(crate) use options::{Options, runtime};
pub(crate) use reply::{Reply, Route, route};
