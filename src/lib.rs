//! Streaming for hyper, axum and tonic services on Linux, with fewer system calls, copies and wake-ups.
//!
//! A service that streams (files, server-sent events, model tokens, gRPC messages) spends most of its time handing bytes
//! to the kernel. This crate changes how that is done and nothing else: the service stays a tower service, its bodies stay
//! [`http_body::Body`]s, HTTP stays hyper's. There are a [listener](net::TcpListener) and a [stream](net::TcpStream) to
//! use in place of tokio's, a [directory](http::Files) as a service, [events](http::Hub) for many readers, a
//! [body adapter](http::Batch) for many small frames,
//! a [server](http::serve()) for those who have none, and [files](fs) and [chains](chain) of operations on them.
//!
//! ```no_run
//! # use std::convert::Infallible;
//! # use bytes::Bytes;
//! # use http_body_util::Full;
//! # use hyper::{Request, Response};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! # let app = tower::service_fn(async |_: Request<millstream::http::RequestBody>| Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))));
//! let listener = millstream::net::TcpListener::bind("127.0.0.1:8080").await?;
//! millstream::http::serve(listener, app).await
//! # }
//! ```
//!
//! With axum it is one line, and the feature `axum`:
//! `axum::serve(millstream::net::TcpListener::bind(addr).await?, app)`.
//!
//! # The way of a byte
//!
//! ```text
//!  Body ──frames──▶ hyper ──IoSlice──▶ net::TcpStream ──▶ egress ──▶ turn (end of this turn) ──▶ kernel
//!  file · batch · yours                recognises origins   a queue of                           sendmsg | sendfile
//!                                                           segments                            | ring
//! ```
//!
//! It runs one way, and three things happen on it:
//!
//! * **Gathering.** Between two waits of a runtime thread lies one *turn*. The first write after something was received
//!   leaves at once, because somebody waits for it. Further writes gather while they keep coming and leave in one system
//!   call at the end of the turn, or after 1 ms. No timer is armed, and an idle service flushes at once.
//! * **Origins.** Files are mapped into an address range of the crate's own, and pool memory lies there too. hyper hands
//!   body memory on by address, so the stream can tell where the bytes came from: long pieces of files go by `sendfile`
//!   and never enter the process, pool memory is kept by reference count instead of being copied. Whoever reads such
//!   memory (TLS, compression, a log) sees ordinary bytes.
//! * **Merging.** A [`Batch`](http::Batch) turns the frames a body has ready into one, without waiting for more.
//!
//! # The way of an operation
//!
//! ```text
//!  fs::File · Chain ──program──▶ page cache, at once     what is in memory is read on the spot
//!                          ├───▶ ring, end of this turn   with what other tasks ask for: one io_uring_enter for all
//!                          └───▶ blocking pool            one job for the whole program: the same answers
//! ```
//!
//! A ring is made for each worker thread when its first operation asks for one. Buffers and descriptors belong to the
//! operation until the kernel has let go of them, whatever happens to the future. [`runtime`] says which way operations go.
//!
//! # The way of a copy
//!
//! [`copy`](mod@copy) looks at what it is given and lets the kernel move the bytes where it can: files share blocks or are copied
//! inside the kernel, files go to sockets by `sendfile` and `splice`, sockets to sockets by `splice`; what the kernel cannot
//! do is read and written. For streams that are not this crate's, [`vectored`] has readers and writers.
//!
//! # The paved path
//!
//! 1. Put [`net::TcpListener`] where tokio's is, and measure.
//! 2. Serve files with [`http::Files`], or a single one with [`http::FileBody`].
//! 3. Wrap bodies that make many small frames in [`http::Batch`].
//! 4. If something of your own stands between hyper and the stream, test it with [`testing::assert_vectored`]: by default
//!    such a wrapper makes hyper copy every byte, and says nothing.
//! 5. Work on files with [`fs::File`], change them with [`fs::replace`], [`fs::prepend`] and [`fs::append`], and make one piece
//!    of several operations with a [`Chain`].
//! 6. Relay with [`copy::copy_bidirectional`], and connect by [`net::Connector`].
//! 7. Put [`http::layer::Measure`] around the service and read [`observe::Requests`], [`observe::Snapshot`] and
//!    [`Capabilities`] to see what was done, and what this machine cannot do and why.
//!
//! Where the kernel lacks something, or a container forbids it, another path gives the same bytes. The one exception is
//! `openat2`: without it directories are not served, because nothing else keeps a path inside of one.
//!
//! # Features
//!
//! | | |
//! |---|---|
//! | `axum` | [`net::TcpListener`] and [`net::UnixListener`] are `axum::serve::Listener`s |
//! | `client` | [`net::Connector`] serves `hyper_util::client::legacy::Client` |
//! | `tls` | `http::Tls`: [`http::serve()`] over TLS, by rustls |
//! | `tonic` | [`net::TcpStream`] and [`net::UnixStream`] are `Connected`, for `serve_with_incoming` |
//! | `redis` | `http::Redis` is a log for [`http::Hub`], in a Redis stream that several processes share |
//! | `metrics` | `observe::record_metrics` gives the numbers to the metrics facade |
//! | `tracing` | what an operator should read about is told to tracing; connections of [`http::serve()`] have spans, and measured requests in them |
#[cfg(not(target_os = "linux"))]
compile_error!("millstream needs Linux: its system calls exist there only");

#[cfg(target_os = "linux")]
pub mod buf;
#[cfg(target_os = "linux")]
pub mod copy;
#[cfg(target_os = "linux")]
mod flow;
#[cfg(target_os = "linux")]
pub mod fs;
#[cfg(target_os = "linux")]
pub mod http;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
pub mod net;
#[cfg(target_os = "linux")]
pub mod observe;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
pub mod runtime;
#[cfg(target_os = "linux")]
pub mod testing;
#[cfg(target_os = "linux")]
mod turn;
#[cfg(target_os = "linux")]
pub mod vectored;

/// Several operations on files as one piece of work.
#[cfg(target_os = "linux")]
pub mod chain {
    pub use crate::ring::Outcome;
    pub use crate::ring::chain::{Chain, Error, OpenOptions, Report, Way};
}

#[cfg(target_os = "linux")]
pub use ring::{Chain, Outcome};

#[cfg(target_os = "linux")]
pub use kernel::caps::{Capabilities, Support};

#[cfg(all(test, target_os = "linux"))]
#[path = "../tests/support/skips.rs"]
mod skips;

// The examples of the README and of docs/ are compiled.
#[cfg(all(doctest, feature = "axum", feature = "client", feature = "redis", feature = "tls", feature = "tonic"))]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/guide.md")]
    mod guide {}
    #[doc = include_str!("../docs/fallbacks.md")]
    #[doc = include_str!("../docs/limits.md")]
    #[doc = include_str!("../docs/numbers.md")]
    #[doc = include_str!("../docs/safety.md")]
    #[doc = include_str!("../docs/testing.md")]
    mod others {}
}
