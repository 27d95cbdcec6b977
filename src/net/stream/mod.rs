//! Streams.
//!
//! - `tcp`, `unix`: the streams; `tcp_options`: options of a TCP connection.
//! - `stream`: the common part of both, with the traits that a server uses.
//! - `recv_buf`: receives.
//! - `readiness`: waits, peeks, and calls that do not wait.
//! - `halves`: a stream for two tasks.
//! - `peer_addr`, `credentials`: who the peer is.
//! - `handle`: observes and changes a live stream.
//! - `owed`: counts bytes that hyper holds and the stream has not accepted.
//! - `counted_io`, `counts`: streams of other crates, with the same counts.

#[cfg(feature = "server")]
mod counted_io;
#[cfg(feature = "server")]
mod counts;
mod credentials;
mod halves;
mod handle;
mod owed;
mod peer_addr;
mod readiness;
mod recv_buf;
mod stream;
mod tcp;
mod tcp_options;
#[cfg(unix)]
mod unix;

pub use super::egress::outlet::{Outlet, Sent};
#[cfg(feature = "server")]
pub use counted_io::CountedIo;
#[cfg(feature = "server")]
pub use counts::{Leaving, SocketFacts};
pub use credentials::Credentials;
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use handle::{Closing, Handle};
pub use owed::Owed;
pub use peer_addr::PeerAddr;
pub use stream::Rewind;
pub(super) use stream::Stream;
pub use stream::{Seen, TakeOver};
pub use tcp::TcpStream;
#[cfg(unix)]
pub use unix::UnixStream;
