//! The only module that calls the system, for Linux. `portable` has the same functions with the same results for other
//! systems; `lib.rs` selects one of the two. So the modules above do not depend on a system: they use the descriptors
//! of `fd`, the errors of `errno` and the flags of `flags`. They never see raw descriptor numbers or raw pointers.
//! Interrupted calls are retried here.
//!
//! ```text
//!  caps      capabilities of this machine, probed at first use, with the reason for every "no"
//!  fd        descriptors
//!  lock      locks of open files
//!  options   options and addresses of sockets
//!  receive   receiving into the buffers of tokio and hyper
//!  tcp_info  numbers of a TCP connection
//!            these are written once for both systems, in the folder above
//!
//!  clock     a cheap clock
//!  cpu       CPU affinity of threads
//!  call      typed system calls: send, receive, sendfile, open beneath
//!  dir       names in a directory
//!  errno     error numbers
//!  exit      the handler for process exit
//!  file      creating, writing, naming and syncing files: calls that wait for a disk
//!  flags     flags of calls on files
//!  heap      unused memory of the heap
//!  memory    memory that this process may use
//!  mounts    file systems that contact a server or a process
//!  page_cache  reads from the page cache only, and what is in it
//!  path      calls on paths, which may wait for the disk
//!  peer      whether work on a file may wait for a peer
//!  probe     the probes of `caps`
//!  signal    calls that must not raise SIGPIPE
//!  socket    sockets: listening, accepting, shutting down, and the peer's state
//!  status    the status of a file
//!  tcp       state and send options of a TCP connection
//!  thread    activity of the threads of this process
//!  transfer  bytes to and from pipes, sockets and files, at their position; waiting for readiness
//!  unix      Unix sockets: names and locks
//!  uring     one io_uring: set-up, submission, completion
//!  watch     descriptors registered with the runtime, and their readiness
//!  vectored  vectored reads and writes, allocate, truncate
//!  map       a reserved address range, files mapped into it, and the guard that survives a truncated file
//! ```

#[path = "../caps.rs"]
pub(crate) mod caps;
#[path = "../fd.rs"]
pub(crate) mod fd;
#[path = "../lock.rs"]
pub(crate) mod lock;
#[path = "../options.rs"]
mod options;
#[path = "../receive.rs"]
pub(crate) mod receive;
#[path = "../tcp_info.rs"]
pub(crate) mod tcp_info;

pub(crate) mod call;
pub(crate) mod clock;
pub(crate) mod cpu;
#[cfg(feature = "fs")]
pub(crate) mod dir;
pub(crate) mod errno;
pub(crate) mod exit;
pub(crate) mod file;
pub(crate) mod flags;
#[cfg(feature = "server")]
pub(crate) mod heap;
pub(crate) mod map;
#[cfg(feature = "files")]
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod page_cache;
pub(crate) mod path;
pub(crate) mod peer;
mod probe;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod status;
pub(crate) mod tcp;
pub(crate) mod thread;
pub(crate) mod transfer;
pub(crate) mod unix;
#[cfg(uring)]
pub(crate) mod uring;
pub(crate) mod vectored;
pub(crate) mod watch;
