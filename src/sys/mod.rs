//! The only room that calls Linux.
//!
//! ```text
//!  caps      what this machine can do, tried once, with the reason for every "no"
//!  clock     a clock that costs little
//!  cpu       the CPUs that threads run on
//!  call      typed system calls: send, receive, sendfile, read without waiting, open beneath
//!  exit      what is done when the process exits
//!  file      making, writing, naming and syncing files: what waits for a disk
//!  mounts    which file systems ask a server or a process
//!  path      calls on paths, which may wait for the disk
//!  peer      whether work on a file may have to wait for somebody else
//!  signal    calls that must not raise SIGPIPE
//!  socket    options and addresses of sockets
//!  tcp       what the kernel knows of a TCP connection, and how it is told to send
//!  thread    what the threads of this process are doing
//!  transfer  bytes to and from what may have no positions: pipes, sockets; waiting for them
//!  unix      Unix sockets: their names, and who is at the other end
//!  uring     one io_uring: set-up, submission, completion
//!  vectored  the same: many pieces at once, allocate, cut
//!  map       a reserved address range, files mapped into it, and the guard that survives a truncated file
//! ```
//!
//! Every other room asks for work in these words and never sees a raw descriptor number or a raw pointer. Calls that a
//! signal interrupted are retried here.

pub(crate) mod call;
pub(crate) mod caps;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod exit;
pub(crate) mod file;
pub(crate) mod map;
pub(crate) mod mounts;
pub(crate) mod path;
pub(crate) mod peer;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod tcp;
pub(crate) mod thread;
pub(crate) mod transfer;
pub(crate) mod unix;
#[cfg(feature = "uring")]
pub(crate) mod uring;
pub(crate) mod vectored;
