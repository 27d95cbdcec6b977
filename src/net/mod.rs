//! Sockets: listeners and streams that replace those of tokio.
//!
//! | I want to | use |
//! |---|---|
//! | accept TCP connections | [`TcpListener`] |
//! | connect | [`TcpStream::connect`]; for an HTTP client `Connector` (feature `client`) |
//! | read and write in two tasks | [`TcpStream::into_split`], [`OwnedReadHalf`], [`OwnedWriteHalf`] |
//! | use Unix sockets | [`UnixListener`], [`UnixStream`], [`Credentials`] |
//! | give each core a listener of one port | [`TcpListenerBuilder::bind_each`], [`Listeners`], [`EachListener`] |
//! | serve tonic | `TcpListener::incoming` (feature `tonic-014`) |
//! | serve on a listener of my own | [`Accept`], `CountedIo` |
//! | choose how much the kernel holds for a peer | [`Profile`], [`ProfileSwitch`] |
//! | limit rates | [`TcpListenerBuilder::pace`], [`SharedPace`] |
//! | read the numbers of a connection, or reset it | [`Handle`], [`StreamStats`] |
//! | choose the path of the bytes | [`SendStrategy`] |
//!
//! ```text
//!  hyper, tonic, your code ──poll_write_vectored──▶ stream ──▶ egress ──┬─ at once ─▶ kernel
//!                                                                       └─ queue ─▶ flusher ─▶ kernel, a call each
//!  hyper, tonic, your code ◀──poll_read── stream ◀── when ready ── kernel
//! ```
//!
//! TCP and Unix sockets share the stream and the accept loop.
//!
//! The first write after a read leaves at once, as on tokio's stream, because the peer waits for an answer. Further
//! writes gather while they keep coming, at most for the listener's gather limit, and leave in one call. A stream whose
//! last turns had one write each sends such writes at once, but for one of up to 64, which waits for others: tokens at
//! the pace of a model, and messages of WebSockets. Long slices are never copied. Otherwise the streams behave like
//! tokio's; [`TcpStream`] lists the exceptions.

// From the top down; imports run downwards only:
//
//   connect/       connecting by name, for HTTP clients
//   listen/        listeners
//   stream/        streams, their handles, and how they receive
//   egress/        the sending side of a stream
//   options        options of a stream, with the setters that builders share
//   resumed        a connection that another process has served before
//   pace           rates
//   profile        how much the kernel holds for a peer
//   stats          the numbers of a connection
//   send_strategy  the path of the bytes

mod connect;
mod egress;
mod listen;
mod options;
mod pace;
mod profile;
mod resumed;
mod send_strategy;
mod stats;
pub(crate) mod stream;

pub use crate::sys::tcp_info::TcpInfo;
#[cfg(feature = "client")]
pub use connect::ConnectError;
#[cfg(all(unix, feature = "client"))]
pub use connect::UnixConnector;
#[cfg(feature = "client")]
pub use connect::{Connecting, Connector};
pub(crate) use egress::Leaving;
pub(crate) use egress::outlet::{Outlet, Seal, Sent};
#[cfg(tls)]
pub(crate) use egress::records::RecordWriter;
#[cfg(feature = "tonic-014")]
pub use listen::Incoming;
pub use listen::{Accept, EachListener, Listeners, TcpListener, TcpListenerBuilder, Transport};
#[cfg(unix)]
pub use listen::{UnixListener, UnixListenerBuilder};
pub use pace::SharedPace;
pub use profile::{Profile, ProfileSwitch};
pub use send_strategy::SendStrategy;
pub(crate) use stats::Pulse;
pub use stats::{FlushCounts, KernelStats, StreamStats};
#[cfg(feature = "server")]
pub use stream::CountedIo;
pub use stream::Credentials;
pub(crate) use stream::Owed;
pub use stream::PeerAddr;
pub use stream::TcpStream;
#[cfg(unix)]
pub use stream::UnixStream;
pub use stream::{Closing, Handle};
pub use stream::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub(crate) use stream::{Rewind, Seen, TakeOver};
