//! One io_uring: set-up that steps down until the kernel agrees, and the three calls
//! ([io_uring(7)](https://man7.org/linux/man-pages/man7/io_uring.7.html)).
//!
//! A ring that [`Uring::new`] gives has carried one operation there and back: a filter that lets set-up pass and blocks
//! the rest is found out there, not by the first user.
//!
//! Rings are small. Since Linux 6.14 or so their memory counts against `RLIMIT_MEMLOCK` of the *user*, all processes
//! together, so that an unprivileged service with the usual 64 KiB gets two rings of 256 entries and none of 1024.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::{self, ThreadId};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{Builder, IoUring, Probe, opcode};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// Fewest entries that are worth a ring.
const ENTRIES_MIN: u32 = 32;
/// `IORING_ENTER_GETEVENTS` and `IORING_ENTER_EXT_ARG`, io_uring_enter(2).
const GETEVENTS: u32 = 1;
const EXT_ARG: u32 = 8;
/// `IORING_CQE_F_MORE` and `IORING_CQE_F_NOTIF`, io_uring_enter(2).
const MORE: u32 = 1 << 1;
const NOTIF: u32 = 1 << 3;
/// How long the first operation of a ring may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a ring should be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Submission entries, a power of two; the completion queue has four times as many.
    pub(crate) entries: u32,
    /// Only the thread that makes the ring will ever enter it. Completions are then put off until it does
    /// (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1), and an eventfd tells that there are some: the ring's own descriptor
    /// would not.
    pub(crate) single_thread: bool,
    /// Most kernel threads for operations that would block: bounded work (files) and unbounded work (the rest).
    /// Without a limit a few hundred blocked splices are a few hundred threads.
    pub(crate) workers: [u32; 2],
}

impl Default for Setup {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Self { entries: 128, single_thread: false, workers: [(cores * 4).max(16), cores * 2] }
    }
}

/// A set-up flag, by name, newest first: the order in which they are given up.
type Flag = (&'static str, fn(&mut Builder));

const SHARED: &[Flag] =
    &[("COOP_TASKRUN", |b| drop(b.setup_coop_taskrun())), ("SUBMIT_ALL", |b| drop(b.setup_submit_all()))];
const SINGLE: &[Flag] = &[
    ("DEFER_TASKRUN", |b| drop(b.setup_defer_taskrun())),
    ("SINGLE_ISSUER", |b| drop(b.setup_single_issuer())),
    ("TASKRUN_FLAG", |b| drop(b.setup_taskrun_flag())),
    ("COOP_TASKRUN", |b| drop(b.setup_coop_taskrun())),
    ("SUBMIT_ALL", |b| drop(b.setup_submit_all())),
];

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) key: u64,
    /// The result of the operation, or the number of its error.
    pub(crate) result: Result<u32, i32>,
    /// Another completion with the same key will follow.
    pub(crate) more: bool,
    /// This one tells only that the memory is no longer used.
    pub(crate) notification: bool,
}

/// Why there is no ring: the step that failed and its error.
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
            _ => "this kernel is not known to behave so",
        };
        write!(f, "{}: {}: {cause}", self.step, io::Error::from(self.error))
    }
}

fn refused(step: &'static str) -> impl Fn(io::Error) -> Refused {
    move |e| Refused { step, error: Errno::from_io_error(&e).unwrap_or(Errno::IO) }
}

/// A ring, its limits and what it supports.
pub(crate) struct Uring {
    ring: IoUring,
    event: Option<OwnedFd>,
    owner: Option<ThreadId>,
    probe: Probe,
    flags: Vec<&'static str>,
    files: u32,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring").field("entries", &self.entries()).field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Uring {
    /// A ring that works: as large as the limits allow, down to 32 entries, with as many of the flags as the kernel has.
    pub(crate) fn new(setup: Setup) -> Result<Self, Refused> {
        let flags = if setup.single_thread { SINGLE } else { SHARED };
        let (ring, flags) = build(setup.entries, flags)?;
        let params = ring.params();
        // From 5.12 on there are all of them; older kernels drop completions or use kernel threads by the hundred.
        if !(params.is_feature_nodrop() && params.is_feature_ext_arg() && params.is_feature_native_workers()) {
            return Err(Refused {
                step: "io_uring of this kernel is too old, Linux 5.12 is needed",
                error: Errno::NOSYS,
            });
        }
        let deferred = flags.contains(&"DEFER_TASKRUN");
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(refused("io_uring_register (probe)"))?;
        // Linux 5.15 and later; before it there is no cap to set.
        let _ = ring.submitter().register_iowq_max_workers(&mut setup.workers.clone());
        let mut uring = Self {
            ring,
            event: None,
            owner: setup.single_thread.then(|| thread::current().id()),
            probe,
            flags,
            files: 0,
        };
        uring.try_nop().map_err(refused("io_uring_enter"))?;
        if deferred {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let event = event.map_err(|error| Refused { step: "eventfd", error })?;
            let registered = uring.ring.submitter().register_eventfd(event.as_raw_fd());
            registered.map_err(refused("io_uring_register (eventfd)"))?;
            uring.event = Some(event);
        }
        Ok(uring)
    }

    /// Makes room for `files` files that are opened by linked operations. `false` if the kernel has none.
    pub(crate) fn register_files(&mut self, files: u32) -> bool {
        let works =
            self.ring.params().is_feature_linked_file() && self.ring.submitter().register_files_sparse(files).is_ok();
        self.files = if works { files } else { 0 };
        works
    }

    /// Files that linked operations can have open at a time.
    pub(crate) fn files(&self) -> u32 {
        self.files
    }

    /// Closes a file that a linked operation has opened.
    pub(crate) fn close_file(&mut self, place: u32) {
        // Fails only for a place outside of the table.
        let _ = self.ring.submitter().register_files_update(place, &[-1]);
    }

    /// Lets fixed operations use `buffers` by index. They are pinned, so they cost memory whether used or not.
    ///
    /// # Safety
    ///
    /// The memory must stay valid for as long as the ring lives.
    pub(crate) unsafe fn register_buffers(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.ring.submitter().register_buffers(buffers) }
    }

    fn try_nop(&mut self) -> io::Result<()> {
        // SAFETY: a NOP points to nothing.
        unsafe { self.push(&opcode::Nop::new().build().user_data(u64::MAX)) };
        let mut done = Vec::new();
        self.enter(1, 1, Some(PROBE_TIMEOUT))?;
        self.reap(&mut done);
        match done[..] {
            [Completion { key: u64::MAX, result: Ok(_), .. }] => Ok(()),
            _ => Err(Errno::IO.into()),
        }
    }

    /// Submission entries.
    pub(crate) fn entries(&self) -> u32 {
        self.ring.params().sq_entries()
    }

    /// Completions that fit the completion queue.
    pub(crate) fn completions(&self) -> u32 {
        self.ring.params().cq_entries()
    }

    /// The set-up flags the kernel agreed to.
    pub(crate) fn flags(&self) -> &[&'static str] {
        &self.flags
    }

    /// Whether the kernel says that it has an operation.
    pub(crate) fn supports(&self, opcode: u8) -> bool {
        self.probe.is_supported(opcode)
    }

    /// A descriptor that becomes readable when there are completions.
    pub(crate) fn wake_fd(&self) -> io::Result<OwnedFd> {
        let fd = self.event.as_ref().map_or(self.ring.as_fd(), AsFd::as_fd);
        Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
    }

    /// Whether this thread may enter the ring.
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.is_none_or(|owner| owner == thread::current().id())
    }

    /// Entries that can be pushed now.
    pub(crate) fn room(&mut self) -> usize {
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Puts an entry into the submission queue, which must have [`room`](Self::room).
    ///
    /// # Safety
    ///
    /// What the entry points to must stay valid, unmoved and untouched until its final completion was reaped.
    pub(crate) unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "internal: pushed to a full submission queue");
    }

    /// Hands `submit` pushed entries to the kernel and waits for `want` completions, at most `timeout`. Returns how many
    /// entries the kernel took; the others stay queued. An elapsed timeout is no error.
    pub(crate) fn enter(&mut self, submit: usize, want: usize, timeout: Option<Duration>) -> io::Result<usize> {
        if !self.is_mine() {
            return Err(Errno::EXIST.into());
        }
        let queue = self.ring.submission();
        let collect = want > 0 || queue.cq_overflow() || queue.taskrun();
        drop(queue);
        let flags = EXT_ARG | if collect { GETEVENTS } else { 0 };
        let timeout = timeout.map(Timespec::from);
        let args = SubmitArgs::new();
        let args = timeout.as_ref().map_or(args, |timeout| args.timespec(timeout));
        // SAFETY: the argument has the size and layout that the flag promises, and outlives the call.
        match unsafe { self.ring.submitter().enter(submit as u32, want as u32, flags, Some(&args)) } {
            Err(e) if e.raw_os_error() == Some(Errno::TIME.raw_os_error()) => Ok(0),
            other => other,
        }
    }

    /// Takes the completions that are there. Returns whether the kernel holds back more of them, which the next
    /// [`enter`](Self::enter) brings.
    pub(crate) fn reap(&mut self, into: &mut Vec<Completion>) -> bool {
        into.extend(self.ring.completion().map(|c| {
            let result = c.result();
            Completion {
                key: c.user_data(),
                result: u32::try_from(result).map_err(|_| -result),
                more: c.flags() & MORE != 0,
                notification: c.flags() & NOTIF != 0,
            }
        }));
        let queue = self.ring.submission();
        queue.cq_overflow() || queue.taskrun()
    }

    /// Completions the kernel had to drop for want of memory: with every one of them an operation never ends.
    pub(crate) fn dropped(&mut self) -> u32 {
        self.ring.completion().overflow()
    }

    /// Cancels everything that is in flight and waits until the kernel has let go, at most `timeout`.
    pub(crate) fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        match self.ring.submitter().register_sync_cancel(Some(timeout.into()), CancelBuilder::any().all()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Builds a ring, giving up entries on `ENOMEM` and flags on `EINVAL`, one at a time.
fn build(mut entries: u32, mut flags: &[Flag]) -> Result<(IoUring, Vec<&'static str>), Refused> {
    loop {
        let mut builder = IoUring::builder();
        // A child that forks off must not find the queues in its memory.
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

/// The descriptor of the ring itself, for tests.
impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

const _: () = assert!(size_of::<SubmitArgs<'_, '_>>() == 24);
