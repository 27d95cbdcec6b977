//! A simulated network for a server in one thread, on a clock that is paused. Everything follows from a seed: when bytes
//! arrive and in which pieces, which connections stall, and what [`Dice`] choose for clients.
//!
//! ```text
//!  client ─▶ Socket ─┐                                    ┌─ ServerIo (CountedIo, SocketFacts) ─▶ server::serve
//!                    └─ Link (bytes, windows, ends) ◀─ Net ┘
//!                                  (one task: lets things arrive in the order of their times)
//! ```
//!
//! A [`Socket`] behaves as a TCP socket: its buffers are bounded, closing it with unread bytes resets the connection, and
//! bytes for a closed socket are answered by a reset, and after a reset its calls fail as those of Linux. It answers what a
//! server asks the kernel: bytes that are not acknowledged, bytes that are not read, and whether the peer has closed. With
//! `kernel`, the server has sockets of the kernel behind the simulated ones, and with them the send path of this crate's
//! own streams.

mod carrier;
mod dice;
mod http2;
#[cfg(target_os = "linux")]
pub mod kernel;
mod link;
mod net;
mod socket;
mod trace;
mod wire;

pub use carrier::Carrier;
pub use dice::Dice;
pub use http2::{Lent, read, read_some, send_all};
pub use link::{Profile, Side};
pub use net::Net;
pub use socket::{ServerIo, SimAddr, SimConnector, SimListener, Socket};
pub use trace::Trace;
pub use wire::{Body, Ended, Head, Pace, RequestHead, Wire, all_bytes, bytes_of, from};
