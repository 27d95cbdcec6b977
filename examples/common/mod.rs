//! What `serve` and `stock` share, so that comparing the two compares the I/O below them and nothing else.

mod bodies;
mod options;

pub(crate) use bodies::{Events, HELLO, Tokens};
pub(crate) use options::{Options, runtime};
