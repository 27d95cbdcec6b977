//! Code shared by `serve` and `stock`, so that a comparison of the two measures only the I/O below it.

mod bodies;
pub(crate) mod cli;
pub(crate) mod options;
mod reply;
#[allow(dead_code, reason = "stock prints errors of one level only")]
mod report;

pub(crate) use options::Options;
pub(crate) use reply::{Reply, Route, route};
#[allow(unused_imports, reason = "stock prints errors of one level only")]
pub(crate) use report::report;
