//! Adapters for any reader and writer: bytes come out as they went in, whatever the other side does, and soon enough.

#[path = "../support/mod.rs"]
mod support;

mod cancelled;
mod counts;
mod fake;
mod files;
mod framed;
mod order;
mod reader;
mod shape;
mod sockets;
mod turn;
