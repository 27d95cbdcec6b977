//! Sockets: a listener and a stream to use where tokio's are used today.
//!
//! ```text
//!  hyper, tonic, your code ──poll_write_vectored──▶ stream ──▶ egress ──┬─ at once ─────────▶ kernel
//!                                                                       └─ queue ─▶ turn ───▶ kernel
//! ```
//!
//! The peer that has just spoken waits for an answer: the first write after a read leaves at once, as it would from
//! tokio's stream. Further writes gather while they keep coming, at most for the listener's gather limit, and leave in
//! one call. Long slices are never copied.

mod egress;
mod listener;
mod listeners;
mod stream;
mod wire;

pub use listener::{TcpListener, TcpListenerBuilder};
pub use listeners::Listeners;
pub use stream::TcpStream;
