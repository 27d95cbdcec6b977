//! Copies between files, sockets and other streams by the fastest available path, and reports that path.
//!
//! | I want to | use |
//! |---|---|
//! | copy from one file or stream to another | [`copy`](copy()) |
//! | limit a copy, watch it, or resume it | [`Copier`] |
//! | relay two streams in both directions | [`copy_bidirectional`] |
//! | know which path the bytes took | [`CopyReport`], [`CopyPath`] |
//!
//! [`copy`] and [`copy_bidirectional`] replace tokio's functions of these names. At run time they recognise the types
//! that the kernel can copy between: tokio's [`TcpStream`](tokio::net::TcpStream),
//! [`UnixStream`](tokio::net::UnixStream), their owned halves, [pipes](tokio::net::unix::pipe) and
//! [`File`](tokio::fs::File), and of this crate [`net::TcpStream`](crate::net::TcpStream),
//! [`fs::FileReader`](crate::fs::FileReader) and [`fs::FileWriter`](crate::fs::FileWriter). For other types, and where
//! the kernel refuses, the bytes are read and written.
//!
//! | from | to | how |
//! |---|---|---|
//! | file | file | shared blocks; else copied by the kernel; else read and written; 8 MiB a time on the blocking pool |
//! | file | socket, pipe | `sendfile`, from 256 KiB on `splice`, once the file is in memory |
//! | socket, pipe | socket, pipe | few bytes at a time: read and written; many: `splice` through a pipe of 1 MiB |
//! | socket, pipe | file | the same; disk waits happen on the blocking pool |
//! | anything else | | read and written concurrently, with 64 KiB each |
//!
//! Two kinds of files are read and written although their type is recognised: targets open for appending (`O_APPEND`),
//! because [copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html) and
//! [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html) refuse them, and files that are not regular, which
//! may have no positions. To let the kernel copy to the end of a file, open it without `append` and seek.
//!
//! A [`tokio::fs::File`] is duplicated for the time of the copy, because work on the blocking pool may outlive it. If
//! no descriptor is free, it is read or written itself.
//!
//! An idle relay holds neither memory nor a pipe. A process has at most 64 pipes; without a free one, bytes are read
//! and written. No thread of the runtime blocks on a disk, and no thread of the blocking pool waits for a socket.

// Modules:
//  job      a copy as a value: limit, rate, progress, resumed after an interruption
//  both     two copies in opposite directions
//  moving   bytes of a known number, to a stream that is known only at run time
//  engine   runs one direction and keeps its state         ┐
//  plan     selects the path of the next bytes: a table    │
//  ends     recognises the types that the kernel can copy  │ internal
//  streams  sockets and pipes among them                   │
//  pump     reads and writes                               │
//  pipes    pool of pipes for splice                       │
//  jobs     blocking steps                                 │
//  stats    counts bytes and calls for the report          │
//  error    the failed step and end                        ┘

pub(crate) mod both;
mod ends;
mod engine;
mod error;
mod job;
mod jobs;
pub(crate) mod moving;
mod pipes;
mod plan;
mod pump;
mod stats;
#[cfg_attr(windows, path = "streams_windows.rs")]
mod streams;

pub use both::copy_bidirectional;
pub use error::{CopyError, Direction};
pub use job::{Copier, copy};
pub use plan::CopyPath;
pub use stats::CopyReport;
