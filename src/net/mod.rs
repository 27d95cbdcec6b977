//! Sockets: listeners and streams that replace those of tokio.
//!
//! | I want to | use |
//! |---|---|
//! | accept TCP connections | [`TcpListener`] |
//! | connect | [`TcpStream::connect`]; for an HTTP client `Connector` (feature `client`) |
//! | read and write in two tasks | [`TcpStream::into_split`], [`OwnedReadHalf`], [`OwnedWriteHalf`] |
//! | use Unix sockets | [`UnixListener`], [`UnixStream`], [`Credentials`] |
//! | give each core a listener of one port | [`TcpListenerBuilder::bind_each`], [`Listeners`] |
//! | serve tonic | `TcpListener::incoming` (feature `tonic-014`) |
//! | serve on a listener of my own | [`Accept`], `CountedIo` |
//! | choose how much the kernel holds for a peer | [`Profile`], [`ProfileSwitch`] |
//! | limit rates | [`TcpListenerBuilder::pace`], [`SharedPace`] |
//! | read the numbers of a connection, or reset it | [`Handle`], [`StreamStats`] |
//! | choose the path of the bytes | [`SendStrategy`], [`Receive`] |
//!
//! ```text
//!  hyper, tonic, your code ──poll_write_vectored──▶ stream ──▶ egress ──┬─ at once ─▶ kernel
//!                                                                       └─ queue ─▶ flusher ─┬─▶ kernel, a call each
//!                                                                                            └─▶ ring, a call for all
//!  hyper, tonic, your code ◀──poll_read── stream ◀──┬─ when ready ── kernel
//!                                                   └─ ingress ◀──── ring, multishot receive
//! ```
//!
//! TCP and Unix sockets share the stream and the accept loop.
//!
//! The first write after a read leaves at once, as on tokio's stream, because the peer waits for an answer. Further
//! writes gather while they keep coming, at most for the listener's gather limit, and leave in one call. Long slices
//! are never copied. Otherwise the streams behave like tokio's; [`TcpStream`] lists the exceptions.

mod accept;
mod accept_failures;
#[cfg(feature = "client")]
mod connect_error;
#[cfg(feature = "client")]
mod connector;
#[cfg(feature = "server")]
mod counted_io;
#[cfg(feature = "server")]
mod counts;
mod credentials;
mod egress;
mod halves;
mod handle;
#[cfg(feature = "tonic-014")]
mod incoming;
#[cfg_attr(not(uring), path = "no_ingress.rs")]
mod ingress;
mod listener;
mod listeners;
#[cfg(unix)]
mod name;
mod options;
pub(crate) mod owed;
mod pace;
mod peer_addr;
mod profile;
mod race;
mod readiness;
mod recv_buf;
mod send_strategy;
mod socket_writer;
mod stats;
pub(crate) mod stream;
mod tcp;
mod tcp_listener;
mod tcp_options;
#[cfg(unix)]
mod unix;
#[cfg(all(unix, feature = "client"))]
mod unix_connector;
#[cfg(unix)]
mod unix_listener;

pub use crate::sys::tcp_info::TcpInfo;
pub use accept::{Accept, Transport};
#[cfg(feature = "client")]
pub use connect_error::ConnectError;
#[cfg(feature = "client")]
pub use connector::{Connecting, Connector};
#[cfg(feature = "server")]
pub use counted_io::CountedIo;
pub use credentials::Credentials;
pub(crate) use egress::Leaving;
pub(crate) use egress::outlet::{Outlet, Sent};
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use handle::{Closing, Handle};
#[cfg(feature = "tonic-014")]
pub use incoming::Incoming;
pub use listeners::Listeners;
pub use options::Receive;
pub(crate) use owed::Owed;
pub use pace::SharedPace;
pub use peer_addr::PeerAddr;
pub use profile::{Profile, ProfileSwitch};
pub use send_strategy::SendStrategy;
pub(crate) use stats::Pulse;
pub use stats::{FlushCounts, KernelStats, StreamStats};
pub(crate) use stream::{Rewind, Seen, TakeOver};
pub use tcp::TcpStream;
pub use tcp_listener::{TcpListener, TcpListenerBuilder};
#[cfg(unix)]
pub use unix::UnixStream;
#[cfg(all(unix, feature = "client"))]
pub use unix_connector::UnixConnector;
#[cfg(unix)]
pub use unix_listener::{UnixListener, UnixListenerBuilder};
