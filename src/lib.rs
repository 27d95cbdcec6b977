//! Streaming for hyper, axum and tonic services on Linux, with fewer system calls, copies and wake-ups.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use millstream::{net::TcpListener, server::serve};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let app = Router::new().route("/", get(|| async { "Hello, world!" }));
//!     serve(TcpListener::bind("127.0.0.1:8080").await?, app).await
//! }
//! ```
//!
//! [`server::serve`] takes any tower service and limits what clients can do. To keep `axum::serve` (feature `axum-08`),
//! hyper or tonic, change one line: the listener. A service that streams (files, server-sent events, model tokens, gRPC
//! messages) spends most of its CPU time in the kernel, sending. This crate reduces that time; the service stays a
//! tower service, its bodies stay `http_body::Body`s, and HTTP stays hyper's.
//!
//! | I want to | use |
//! |---|---|
//! | keep my server, and send by fewer calls | [`net::TcpListener`] in place of tokio's |
//! | have a server with limits, graceful shutdown and TLS | [`server`] |
//! | serve a directory, or one file | [`files::Files`], [`body::FileBody`] |
//! | send events, or many small frames | [`sse::Hub`], [`body::Batch`] |
//! | receive into files | [`body::save`](body::save()) |
//! | answer range requests for an object store | [`body::ranges`](body::ranges()) |
//! | read, write, replace and extend files | [`fs`] |
//! | copy or relay | [`copy`](mod@copy) |
//! | gather on streams of other crates | [`codec`] |
//! | measure or compress responses | [`middleware`] |
//! | see which paths were taken | [`metrics::Snapshot`] |
//! | see what this machine lacks, and why | [`Capabilities`] |
//! | test a wrapper between hyper and the stream | [`testing::assert_vectored`]: many make hyper copy every byte |
//!
//! The [guide](https://github.com/millstream-rs/millstream/blob/main/docs/guide/README.md) has a program for each task.
//!
//! If the kernel lacks a feature, or a container forbids it, another path gives the same bytes. The one exception is
//! `openat2`: without it, directories are not served, because nothing else confines a path to a directory.
//!
//! # Features
//!
//! Without features, the crate has the listeners, the streams and gathering.
//!
//! | feature | default | |
//! |---|---|---|
//! | `server` | yes | [`server`]: HTTP/1.1 and HTTP/2 on hyper, with limits and graceful shutdown; [`middleware`]: measurements; implies `body` |
//! | `files` | yes | [`files`]: a directory as a tower service; implies `fs` and `body` |
//! | `sse` | yes | [`sse`]: events for many readers; with `fs` also a log of them in a directory; with `server` also a layer that keeps any event stream alive; implies `body` |
//! | `fs` | yes | [`fs`]: files, chains of operations, replace, prepend and append; [`copy`](mod@copy): copies between files, pipes and sockets; by io_uring on Linux |
//! | `codec` | yes | [`codec`]: buffered readers and writers for other streams, and `Framed` |
//! | `body` | | [`body`]: `Batch`, `from_reader` and `ranges`; with `fs` also `FileBody` and `save` |
//! | `compress` | | `body::Compress`: gzip, br and zstd; with `server` also a layer, with `sse` compressed events; implies `body` |
//! | `digest` | | `body::Save`: digests of what is saved, checked against header fields; implies `body` and `fs` |
//! | `axum-08` | | the listeners implement `axum::serve::Listener` of axum 0.8 |
//! | `client` | | `net::Connector` for `hyper_util::client::legacy::Client` |
//! | `metrics` | | `metrics::record_metrics` for the metrics facade |
//! | `tls-ring` | | `server::tls`: TLS by rustls, with the cryptography of ring; implies `server` |
//! | `tls-aws-lc-rs` | | the same by AWS-LC, which is faster and takes longer to build |
//! | `tonic-014` | | the streams implement `Connected` of tonic 0.14; `net::Incoming` |
//! | `tracing` | | events for operators, and spans of connections and requests |
//!
//! # How it works
//!
//! ```text
//!  Body ──frames──▶ hyper ──IoSlice──▶ net::TcpStream ──▶ send queue ──▶ flusher (end of this turn) ──▶ kernel
//!  file · batch · yours                recognises origins  segments                                sendmsg | sendfile
//! ```
//!
//! * **Gathering.** A *turn* is the time between two waits of a runtime thread. The first write after a read is sent at
//!   once, because the peer waits for it. Further writes are gathered and sent by one system call at the end of the
//!   turn, at most 1 ms later. No timer is armed, and an idle service flushes at once. Where turns have one write each,
//!   most of these do not wait.
//! * **Origins.** Files are mapped into an address range of this crate, and pool memory lies in another. hyper passes
//!   body memory by address, so the stream recognises it: long parts of files are sent by `sendfile` and never enter
//!   the process, and pool memory is kept by reference count instead of being copied. Other readers of such memory, for
//!   example TLS and compression, see ordinary bytes.
//! * **Merging.** [`body::Batch`] merges the frames that a body has ready into one, and never waits for more.
//!
//! Operations of [`fs`] read cached data on the spot. Others are submitted to io_uring together with those of other
//! tasks at the end of the turn, or run on the blocking pool. A ring belongs to a worker thread and is created by its
//! first operation. Buffers and descriptors belong to an operation until the kernel has completed it, even if its
//! future is dropped.
//!
//! [`copy`](mod@copy) moves bytes inside the kernel where both ends allow it: files share blocks or use
//! `copy_file_range`, and sockets use `sendfile` and `splice`.
//!
//! # Other systems
//!
//! On macOS and Windows the crate is built without the calls that only Linux has. The interface is the same, except
//! that Windows has no Unix sockets. Features that a system lacks return neutral values or fail with
//! `ErrorKind::Unsupported`, and [`Capabilities`] says so. Gathering remains; nothing else promises speed.
//! `--cfg millstream_portable` chooses this build on Linux.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without some features, internal functions and re-exports are unused. With the default features, all are used.
#![cfg_attr(
    any(portable, not(all(feature = "codec", feature = "files", feature = "fs", feature = "server", feature = "sse"))),
    allow(dead_code, unreachable_pub, unused_imports)
)]

#[cfg(feature = "body")]
pub mod body;
pub mod buf;
#[cfg(feature = "codec")]
pub mod codec;
#[cfg(feature = "fs")]
pub mod copy;
mod counters;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "fs")]
pub mod fs;
pub mod metrics;
#[cfg(feature = "server")]
pub mod middleware;
pub mod net;
#[cfg(feature = "fs")]
mod ops;
#[cfg_attr(not(uring), path = "ring/absent.rs")]
mod ring;
pub mod runtime;
#[cfg(feature = "server")]
pub mod server;
#[cfg(any(feature = "server", feature = "sse"))]
mod spread;
#[cfg(feature = "sse")]
pub mod sse;
mod sync;
#[cfg_attr(portable, path = "sys/portable/mod.rs")]
#[cfg_attr(not(portable), path = "sys/linux/mod.rs")]
mod sys;
pub mod testing;

#[cfg(any(feature = "server", feature = "sse"))]
pub use spread::Spread;
pub use sys::caps::{Capabilities, Support};

/// Items for the companion crates, which depend on the exact version of this crate. There is no stability promise for
/// other users.
#[doc(hidden)]
pub mod internal {
    use std::fs::File;
    use std::io;
    use std::sync::Arc;

    #[cfg(feature = "body")]
    pub use crate::body::direct::Direct;
    #[cfg(feature = "body")]
    pub use crate::body::silence::Silence;
    pub use crate::buf::lease;
    #[cfg(feature = "fs")]
    pub use crate::copy::{both::Both, moving::Moving};
    pub use crate::counters::{Counter, Gauge, Present, count};
    #[cfg(feature = "server")]
    pub use crate::middleware::measure::request_id::RequestId;
    pub use crate::net::stream::{Owed, Rewind};
    /// Streams over sockets that are not the kernel's, as a server sees them.
    #[cfg(feature = "server")]
    pub mod socket {
        pub use crate::net::stream::{Leaving, Seen, SocketFacts, TakeOver};
        pub use crate::net::stream::{Outlet, Sent};

        /// Polls `body` for the next frame. While there is none, its hub writes the events to the outlet, if there is
        /// one. Only for the task of the stream, which sends everything else on this stream by an outlet, too.
        #[cfg(feature = "sse")]
        pub fn poll_direct(
            body: &mut crate::sse::EventBody,
            outlet: &dyn Fn() -> Option<Outlet>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<bytes::Bytes>> {
            body.poll_direct(outlet, cx)
        }

        /// Returns whether another process or server has served the connection before.
        pub fn is_resumed(stream: &impl Seen) -> bool {
            stream.seen().is_resumed()
        }

        /// Wraps a stream whose `socket` answers a server.
        pub fn counted<T>(io: T, socket: Box<dyn SocketFacts>) -> crate::net::CountedIo<T> {
            crate::net::CountedIo::with(io, Some(socket))
        }
    }
    #[cfg(feature = "server")]
    pub use crate::server::request::{Host, Name, status_of};
    #[cfg(feature = "server")]
    pub use crate::server::response::{Framing, is_events, is_plain_events, takes_comments};
    #[cfg(feature = "sse")]
    pub use crate::spread::Draws;
    /// The client of a request.
    #[cfg(feature = "server")]
    pub mod identity {
        pub use crate::server::accept::identity::{connection, connection_slot, peer, socket_peer};
    }

    /// Maximum length of a mapping.
    pub const WINDOW: usize = crate::buf::origin::WINDOW;

    /// Maps `file`, which must not change while the bytes are used, and keeps `companion` as long as they are.
    ///
    /// # Errors
    ///
    /// The file cannot be mapped.
    pub fn map_file(
        file: Arc<File>,
        offset: u64,
        len: usize,
        companion: Arc<dyn std::any::Any + Send + Sync>,
    ) -> io::Result<bytes::Bytes> {
        Ok(crate::buf::origin::Mapping::with(file, offset, len, Some(companion))?.bytes())
    }

    /// Returns whether a range of `file` is in the page cache; `false` if the kernel does not tell.
    pub fn is_resident(file: &File, offset: u64, len: u64) -> bool {
        crate::sys::page_cache::is_resident(crate::sys::fd::AsFd::as_fd(file), offset, len)
    }

    /// Returns whether `stream` has received bytes that another reader of its socket would miss.
    pub fn has_unread_bytes(stream: &crate::net::UnixStream) -> bool {
        stream.has_unread_bytes()
    }

    /// Hubs over events that their user keeps.
    #[cfg(feature = "sse")]
    pub mod kept {
        pub use crate::sse::hub::kept::{Asked, KeptHub, KeptReader, encode, id_of, next_of, refusal, with_id};
        pub use crate::sse::ring::Keeper;
    }

    /// Files of logs.
    #[cfg(all(feature = "fs", feature = "sse"))]
    pub mod log_files {
        use std::fs::File;
        use std::io;

        use crate::sys::fd::AsFd;
        use crate::sys::{lock, mounts};

        pub use crate::sse::log::disk::scan::Window;

        /// Locks the open file. Returns `false` if it is locked elsewhere. Unlock it before it is closed.
        ///
        /// # Errors
        ///
        /// The file system has no locks.
        pub fn try_lock(file: &File) -> io::Result<bool> {
            lock::try_lock(file.as_fd())
        }

        /// Unlocks the open file.
        ///
        /// # Errors
        ///
        /// The file system has no locks.
        pub fn unlock(file: &File) -> io::Result<()> {
            lock::unlock(file.as_fd())
        }

        /// Returns whether a call for the length of a file in this directory may wait for a server or another process.
        pub fn may_wait(directory: &File) -> bool {
            mounts::may_wait(directory.as_fd())
        }
    }

    /// Appends on their way to a log of events.
    #[cfg(feature = "sse")]
    pub mod log_queue {
        pub use crate::sse::log::queue::{Append, Queue, Queued, Refused, Running, Size, either};
    }
}

/// Private parts that are fuzzed directly: see `fuzz/`.
#[cfg(all(fuzzing, uring))]
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::ring::tests::fuzz::ring;
}

#[cfg(test)]
use testkit::{report, skips};

// The examples of the README and of docs/ are compiled.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/guide/serve.md")]
    #[doc = include_str!("../docs/guide/migrate.md")]
    #[doc = include_str!("../docs/guide/from-axum.md")]
    #[doc = include_str!("../docs/guide/respond.md")]
    #[doc = include_str!("../docs/guide/receive.md")]
    #[doc = include_str!("../docs/guide/files.md")]
    #[doc = include_str!("../docs/guide/operate.md")]
    mod guide {}
    #[doc = include_str!("../docs/fallbacks.md")]
    #[doc = include_str!("../docs/limits.md")]
    #[doc = include_str!("../docs/numbers.md")]
    #[doc = include_str!("../docs/process.md")]
    #[doc = include_str!("../docs/safety.md")]
    #[doc = include_str!("../docs/scope.md")]
    #[doc = include_str!("../docs/testing.md")]
    mod others {}
}
