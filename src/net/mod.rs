//! Sockets: a listener and a stream to use where tokio's are used today.
//!
//! ```text
//!  hyper, tonic, your code ──poll_write_vectored──▶ stream ──▶ egress ──┬─ at once ─────────▶ kernel
//!                                                                       └─ queue ─▶ turn ─┬─▶ kernel, by its own call
//!                                                                                          └─▶ ring, one call for many: where
//!                                                                                              that was asked for
//!  hyper, tonic, your code ◀──poll_read── stream ◀──┬─ when ready ── kernel
//!                                                   └─ ingress ◀── ring, which receives by itself
//! ```
//!
//! TCP and Unix sockets have the same stream under names of their own, and the same accept loop. The other way round, a
//! [`Connector`] makes such streams for an HTTP client.
//!
//! The peer that has just spoken waits for an answer: the first write after a read leaves at once, as it would from
//! tokio's stream. Further writes gather while they keep coming, at most for the listener's gather limit, and leave in
//! one call. Long slices are never copied. In all else the streams do what tokio's do; [`TcpStream`] lists the exceptions.

#[cfg(feature = "client")]
mod connect_error;
#[cfg(feature = "client")]
mod connector;
mod egress;
mod handle;
mod identity;
#[cfg(feature = "tonic")]
mod incoming;
#[cfg_attr(not(feature = "uring"), path = "no_ingress.rs")]
mod ingress;
mod listener;
mod listeners;
mod name;
mod options;
mod pace;
mod path;
mod profile;
mod race;
mod socket_writer;
mod stats;
mod stream;
mod tcp;
mod unix;

pub use crate::sys::tcp::TcpInfo;
#[cfg(feature = "client")]
pub use connect_error::ConnectError;
#[cfg(feature = "client")]
pub use connector::{Connecting, Connector, UnixConnector};
pub(crate) use handle::Leaving;
pub use handle::{Closing, Handle};
pub(crate) use identity::{Identity, Origin};
#[cfg(feature = "tonic")]
pub use incoming::Incoming;
pub use listener::Accept;
pub use listeners::Listeners;
pub use options::Receive;
pub use pace::SharedPace;
pub use path::IoPath;
pub use profile::{Profile, ProfileSwitch};
pub(crate) use stats::Pulse;
pub use stats::{FlushCounts, KernelStats, StreamStats};
pub(crate) use stream::{Rewind, Seen};
pub use tcp::{TcpListener, TcpListenerBuilder, TcpStream};
pub use unix::{Credentials, UnixListener, UnixListenerBuilder, UnixStream};
