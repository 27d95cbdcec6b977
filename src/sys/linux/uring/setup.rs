//! Requested properties of a ring, reduced until the kernel accepts them.
//!
//! Rings are small. Since about Linux 6.14 their memory counts against `RLIMIT_MEMLOCK` of the *user*, over all
//! processes: an unprivileged service with the usual 64 KiB gets two rings of 256 entries and none of 1024.

use std::fmt;
use std::io;
use std::thread;

use io_uring::{Builder, IoUring};
use rustix::io::Errno;

/// Minimum number of entries of a useful ring.
const ENTRIES_MIN: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Submission entries, a power of two; the completion queue has four times as many.
    pub(crate) entries: u32,
    /// Whether only the creating thread enters the ring. Completions are then deferred until it does
    /// (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1). An eventfd signals them, because the ring's own descriptor would not.
    pub(crate) single_thread: bool,
    /// Maximum number of kernel threads for blocking operations: bounded work (files) and unbounded work (the rest).
    /// Without a limit, a few hundred blocked splices create a few hundred threads.
    pub(crate) workers: [u32; 2],
}

impl Default for Setup {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Self { entries: 128, single_thread: false, workers: [(cores * 2).max(8), cores * 2] }
    }
}

/// A set-up flag and its name. Lists are newest first, the order in which flags are given up.
type Flag = (&'static str, fn(&mut Builder));

const SHARED: &[Flag] =
    &[("COOP_TASKRUN", |b| _ = b.setup_coop_taskrun()), ("SUBMIT_ALL", |b| _ = b.setup_submit_all())];
const SINGLE: &[Flag] = &[
    ("DEFER_TASKRUN", |b| _ = b.setup_defer_taskrun()),
    ("SINGLE_ISSUER", |b| _ = b.setup_single_issuer()),
    ("TASKRUN_FLAG", |b| _ = b.setup_taskrun_flag()),
    ("COOP_TASKRUN", |b| _ = b.setup_coop_taskrun()),
    ("SUBMIT_ALL", |b| _ = b.setup_submit_all()),
];

/// Reason why a ring cannot be created: the failed step and its error.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    step: &'static str,
    error: Errno,
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.error {
            Errno::NOSYS => "the kernel was built without it, or a sandbox such as gVisor hides it",
            Errno::PERM | Errno::ACCESS => {
                "usual causes are a container's seccomp profile and sysctl kernel.io_uring_disabled"
            }
            Errno::NOMEM => {
                "the limit on locked memory (ulimit -l, RLIMIT_MEMLOCK) has no room for 32 entries; it counts for all \
                 processes of this user"
            }
            Errno::MFILE | Errno::NFILE => "there are too many open files (ulimit -n)",
            _ => "the cause is not known",
        };
        write!(f, "{}: {}: {cause}", self.step, io::Error::from(self.error))
    }
}

impl Refused {
    pub(super) fn new(step: &'static str, error: Errno) -> Self {
        Self { step, error }
    }

    pub(crate) fn error(&self) -> Errno {
        self.error
    }
}

pub(super) fn refused(step: &'static str) -> impl Fn(io::Error) -> Refused {
    move |e| Refused { step, error: Errno::from_io_error(&e).unwrap_or(Errno::IO) }
}

impl Setup {
    /// Builds a ring as close to these properties as the kernel accepts. Also returns the names of its flags.
    pub(super) fn build(&self) -> Result<(IoUring, Vec<&'static str>), Refused> {
        build(self.entries, if self.single_thread { SINGLE } else { SHARED })
    }
}

/// Builds a ring, giving up entries on `ENOMEM` and flags on `EINVAL`, one at a time.
fn build(mut entries: u32, mut flags: &[Flag]) -> Result<(IoUring, Vec<&'static str>), Refused> {
    loop {
        let mut builder = IoUring::builder();
        // A forked child must not map the queues.
        builder.dontfork().setup_clamp().setup_cqsize(entries * 4);
        flags.iter().for_each(|(_, set)| set(&mut builder));
        match builder.build(entries) {
            Ok(ring) => return Ok((ring, flags.iter().map(|(name, _)| *name).collect())),
            Err(e) if e.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) && entries > ENTRIES_MIN => entries /= 2,
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) && !flags.is_empty() => flags = &flags[1..],
            Err(e) => return Err(refused("io_uring_setup")(e)),
        }
    }
}

#[cfg(test)]
mod tests;
