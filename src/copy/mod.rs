//! Copying: from whatever to whatever, by the best way this machine has, and a report of which that was.
//!
//! [`copy`] and [`copy_bidirectional`] stand where tokio's functions of that name do. They recognise, at run time, the types
//! that the kernel can move bytes between by itself: tokio's [`TcpStream`](tokio::net::TcpStream),
//! [`UnixStream`](tokio::net::UnixStream), their owned halves, [pipes](tokio::net::unix::pipe) and
//! [`File`](tokio::fs::File), and of this crate [`net::TcpStream`](crate::net::TcpStream), [`fs::Reader`](crate::fs::Reader)
//! and [`fs::Writer`](crate::fs::Writer). Everything else, and whatever the kernel refuses, is read and written.
//!
//! | from | to | how |
//! |---|---|---|
//! | file | file | its blocks are shared; else copied by the kernel; else read and written. On the blocking pool, 8 MiB at a time |
//! | file | socket, pipe | `sendfile`, from 256 KiB on `splice`, once the file is in memory |
//! | socket, pipe | socket, pipe | few bytes at a time: read and written; many: `splice` through a pipe of 1 MiB |
//! | socket, pipe | file | the same; what waits for the disk waits on the blocking pool |
//! | anything else | | read and written at the same time, with 64 KiB each |
//!
//! Two kinds of files are read and written although their type is recognised. One is a target that is open for appending
//! (`O_APPEND`): [copy_file_range(2)](https://man7.org/linux/man-pages/man2/copy_file_range.2.html) and
//! [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html) refuse it, and it has no position to write at. Open the
//! file without `append` and seek to its end to let the kernel copy. The other is what is no regular file, such as a
//! device: it may have no positions.
//!
//! A relay that has nothing to do holds neither memory nor pipe. 64 pipes is the most a process has; who finds none reads
//! and writes meanwhile. No thread of the runtime waits for a disk, and no other thread waits for a socket.
//!
//! ```text
//!  job      a copy as a value: limit, rate, progress, resumed after it was interrupted
//!  both     two in opposite directions
//!  engine   what is done next, and what is kept while it waits      ┐
//!  plan     which way the next bytes go: a table                    │
//!  ends     what the kernel can work on, recognised by its type     │ what these
//!  pump     reading and writing                                     │ are made of
//!  pipes    what bytes are spliced through, kept for the next copy  │
//!  jobs     what waits for a disk                                   │
//!  tally    what was done                                           │
//!  error    which step failed, and where                            ┘
//! ```

mod both;
mod ends;
mod engine;
mod error;
mod job;
mod jobs;
mod pipes;
mod plan;
mod pump;
mod stats;

pub use both::copy_bidirectional;
pub use error::{Direction, Error, Step};
pub use job::{Copy, copy};
pub use plan::Path;
pub use stats::Report;
