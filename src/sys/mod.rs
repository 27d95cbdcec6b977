//! The only module that calls Linux.
//!
//! ```text
//!  caps      capabilities of this machine, probed once, with the reason for every "no"
//!  clock     a cheap clock
//!  cpu       CPU affinity of threads
//!  call      typed system calls: send, receive, sendfile, read without waiting, open beneath
//!  errno     error numbers
//!  exit      the handler for process exit
//!  fd        descriptors
//!  file      creating, writing, naming and syncing files: calls that wait for a disk
//!  flags     flags of calls on files
//!  mounts    file systems that contact a server or a process
//!  path      calls on paths, which may wait for the disk
//!  peer      whether work on a file may wait for a peer
//!  probe     the probes of `caps`
//!  signal    calls that must not raise SIGPIPE
//!  socket    options and addresses of sockets
//!  status    the status of a file
//!  tcp_info  numbers of a TCP connection
//!  tcp       state and send options of a TCP connection
//!  thread    activity of the threads of this process
//!  transfer  bytes to and from pipes, sockets and files, at their position; waiting for readiness
//!  unix      Unix sockets: names and locks
//!  uring     one io_uring: set-up, submission, completion
//!  watch     descriptors registered with the runtime, and their readiness
//!  vectored  vectored reads and writes, allocate, truncate
//!  map       a reserved address range, files mapped into it, and the guard that survives a truncated file
//! ```
//!
//! Other modules never see raw descriptor numbers or raw pointers. Interrupted calls are retried here.

#[cfg(portable)]
#[path = "portable/borrow.rs"]
mod borrow;
#[cfg_attr(portable, path = "portable/call.rs")]
pub(crate) mod call;
pub(crate) mod caps;
#[cfg_attr(portable, path = "portable/clock.rs")]
pub(crate) mod clock;
#[cfg_attr(portable, path = "portable/cpu.rs")]
pub(crate) mod cpu;
#[cfg_attr(portable, path = "portable/errno.rs")]
pub(crate) mod errno;
#[cfg_attr(portable, path = "portable/exit.rs")]
pub(crate) mod exit;
#[cfg_attr(windows, path = "portable/fd.rs")]
pub(crate) mod fd;
#[cfg_attr(portable, path = "portable/file.rs")]
pub(crate) mod file;
#[cfg_attr(portable, path = "portable/flags.rs")]
pub(crate) mod flags;
#[cfg_attr(portable, path = "portable/map.rs")]
pub(crate) mod map;
#[cfg_attr(portable, path = "portable/mounts.rs")]
pub(crate) mod mounts;
#[cfg_attr(portable, path = "portable/path.rs")]
pub(crate) mod path;
#[cfg_attr(portable, path = "portable/peer.rs")]
pub(crate) mod peer;
#[cfg_attr(portable, path = "portable/probe.rs")]
mod probe;
#[cfg(not(portable))]
mod signal;
#[cfg_attr(portable, path = "portable/socket.rs")]
pub(crate) mod socket;
#[cfg_attr(portable, path = "portable/status.rs")]
pub(crate) mod status;
#[cfg_attr(portable, path = "portable/tcp.rs")]
pub(crate) mod tcp;
pub(crate) mod tcp_info;
#[cfg_attr(portable, path = "portable/thread.rs")]
pub(crate) mod thread;
#[cfg_attr(portable, path = "portable/transfer.rs")]
pub(crate) mod transfer;
#[cfg(unix)]
#[cfg_attr(portable, path = "portable/unix.rs")]
pub(crate) mod unix;
#[cfg(feature = "uring")]
#[cfg_attr(portable, path = "portable/uring.rs")]
pub(crate) mod uring;
#[cfg_attr(portable, path = "portable/vectored.rs")]
pub(crate) mod vectored;
#[cfg_attr(portable, path = "portable/watch.rs")]
pub(crate) mod watch;

/// Returns the error of what the portable build does not do.
#[cfg(portable)]
fn unsupported(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::Unsupported, format!("portable build: {what}"))
}
