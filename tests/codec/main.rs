//! Adapters for any reader and writer: bytes arrive unchanged and without delay, for every behaviour of the other side.

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
