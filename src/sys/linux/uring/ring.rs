//! One io_uring and its three calls ([io_uring(7)](https://man7.org/linux/man-pages/man7/io_uring.7.html)).
//!
//! [`Uring::new`] completes one operation, to detect a filter that allows set-up and blocks the rest.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread::{self, ThreadId};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use super::setup::{Refused, Setup, refused};
use crate::counters::{Counter, count};

/// `IORING_ENTER_GETEVENTS` and `IORING_ENTER_EXT_ARG`, io_uring_enter(2).
const GETEVENTS: u32 = 1;
const EXT_ARG: u32 = 8;
/// Maximum number of attempts of the first operation of a ring.
const PROBES: u32 = 16;
/// Time limit of the first operation of a ring.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) key: u64,
    pub(crate) result: Result<u32, i32>,
}

/// Returns whether the error is temporary: the kernel was busy or interrupted.
fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

pub(crate) struct Uring {
    ring: IoUring,
    event: Option<OwnedFd>,
    owner: Option<ThreadId>,
    process: Pid,
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
    /// Creates a working ring: as large as the limits allow, at least 32 entries, with all flags the kernel supports.
    pub(crate) fn new(setup: Setup) -> Result<Self, Refused> {
        let (ring, flags) = setup.build()?;
        let params = ring.params();
        // Linux 5.12 has all of them, as do older distribution kernels with a newer io_uring. Without them completions
        // are dropped, waits have no time limit, and kernel threads are created by the hundred.
        for (has, lacks) in [
            (params.is_feature_nodrop(), "io_uring lacks IORING_FEAT_NODROP"),
            (params.is_feature_ext_arg(), "io_uring lacks IORING_FEAT_EXT_ARG"),
            (params.is_feature_native_workers(), "io_uring lacks IORING_FEAT_NATIVE_WORKERS"),
        ] {
            if !has {
                return Err(Refused::new(lacks, Errno::OPNOTSUPP));
            }
        }
        let deferred = flags.contains(&"DEFER_TASKRUN");
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(refused("io_uring_register (probe)"))?;
        // Linux 5.15; older kernels have no cap to set.
        let _ = ring.submitter().register_iowq_max_workers(&mut setup.workers.clone());
        let mut uring = Self {
            ring,
            event: None,
            owner: setup.single_thread.then(|| thread::current().id()),
            process: getpid(),
            probe,
            flags,
            files: 0,
        };
        uring.try_nop().map_err(refused("io_uring_enter"))?;
        if deferred {
            let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let event = event.map_err(|errno| Refused::new("eventfd", errno))?;
            let registered = uring.ring.submitter().register_eventfd(event.as_raw_fd());
            registered.map_err(refused("io_uring_register (eventfd)"))?;
            uring.event = Some(event);
        }
        Ok(uring)
    }

    /// Registers a table of `files` places for files opened by linked operations. Returns `false` on failure.
    pub(crate) fn register_files(&mut self, files: u32) -> bool {
        let works =
            self.ring.params().is_feature_linked_file() && self.ring.submitter().register_files_sparse(files).is_ok();
        self.files = if works { files } else { 0 };
        works
    }

    pub(crate) fn files(&self) -> u32 {
        self.files
    }

    pub(crate) fn close_file(&mut self, place: u32) {
        // Fails only for a place outside the table.
        let _ = self.ring.submitter().register_files_update(place, &[-1]);
    }

    fn try_nop(&mut self) -> io::Result<()> {
        // SAFETY: a NOP points to nothing.
        unsafe { self.push(&opcode::Nop::new().build().user_data(u64::MAX)) };
        let mut done = Vec::new();
        for last in (0..PROBES).map(|n| n + 1 == PROBES) {
            let submit = usize::from(self.room() < self.entries() as usize);
            match self.enter(submit, 1, Some(PROBE_TIMEOUT)) {
                Err(e) if last || !is_passing(&e) => return Err(e),
                _ => self.reap(&mut done),
            };
            if !done.is_empty() {
                break;
            }
        }
        match done[..] {
            [Completion { key: u64::MAX, result: Ok(_) }] => Ok(()),
            _ => Err(Errno::IO.into()),
        }
    }

    pub(crate) fn entries(&self) -> u32 {
        self.ring.params().sq_entries()
    }

    /// Returns the size of the completion queue.
    pub(crate) fn completions(&self) -> u32 {
        self.ring.params().cq_entries()
    }

    pub(crate) fn flags(&self) -> &[&'static str] {
        &self.flags
    }

    pub(crate) fn supports(&self, opcode: u8) -> bool {
        self.probe.is_supported(opcode)
    }

    /// Returns a descriptor that becomes readable when completions are available.
    pub(crate) fn wake_fd(&self) -> io::Result<OwnedFd> {
        let fd = self.event.as_ref().map_or(self.ring.as_fd(), AsFd::as_fd);
        Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
    }

    fn is_mine(&self) -> bool {
        self.owner.is_none_or(|owner| owner == thread::current().id())
    }

    /// Returns whether this process created the ring. A forked child lacks its memory, and must call nothing else.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == getpid()
    }

    pub(crate) fn room(&mut self) -> usize {
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Appends an entry to the submission queue, which must have [`room`](Self::room).
    ///
    /// # Safety
    ///
    /// Memory that the entry points to must stay valid, unmoved and untouched until its final completion is reaped.
    pub(crate) unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "internal: pushed to a full submission queue");
    }

    /// Submits `submit` pushed entries and waits for `want` completions, at most for `timeout`. Returns the number of
    /// entries the kernel accepted; the others stay queued. A timeout is not an error.
    pub(crate) fn enter(&mut self, submit: usize, want: usize, timeout: Option<Duration>) -> io::Result<usize> {
        if !self.is_mine() {
            return Err(Errno::EXIST.into());
        }
        let queue = self.ring.submission();
        let overflows = queue.cq_overflow();
        let collect = want > 0 || overflows || queue.taskrun();
        drop(queue);
        if overflows {
            count(Counter::RingOverflows, 1);
        }
        let flags = EXT_ARG | if collect { GETEVENTS } else { 0 };
        let timeout = timeout.map(Timespec::from);
        let args = SubmitArgs::new();
        let args = timeout.as_ref().map_or(args, |timeout| args.timespec(timeout));
        // SAFETY: the argument has the size and layout that the flag requires, and outlives the call.
        match unsafe { self.ring.submitter().enter(submit as u32, want as u32, flags, Some(&args)) } {
            Err(e) if e.raw_os_error() == Some(Errno::TIME.raw_os_error()) => Ok(0),
            other => other,
        }
    }

    /// Moves available completions to `into`. Returns whether an [`enter`](Self::enter) would fetch more.
    pub(crate) fn reap(&mut self, into: &mut Vec<Completion>) -> bool {
        into.extend(self.ring.completion().map(|c| {
            let result = c.result();
            Completion { key: c.user_data(), result: u32::try_from(result).map_err(|_| -result) }
        }));
        let queue = self.ring.submission();
        queue.cq_overflow() || queue.taskrun()
    }

    /// Returns the number of completions that the kernel dropped for lack of memory; their operations never end.
    pub(crate) fn dropped(&mut self) -> u32 {
        self.ring.completion().overflow()
    }

    /// Cancels all operations in flight and waits until they have ended, at most for `timeout`.
    pub(crate) fn cancel_all(&mut self, timeout: Duration) -> io::Result<()> {
        match self.ring.submitter().register_sync_cancel(Some(timeout.into()), CancelBuilder::any().all()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

const _: () = assert!(size_of::<SubmitArgs<'_, '_>>() == 24);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec as PollTime, poll};

    fn ring(setup: Setup) -> Option<Uring> {
        Uring::new(setup).inspect_err(|refused| crate::skips::skip("io_uring", refused)).ok()
    }

    fn submit(ring: &mut Uring, key: u64) {
        let entry = opcode::Nop::new().build().user_data(key).flags(io_uring::squeue::Flags::ASYNC);
        // SAFETY: a NOP points to nothing.
        unsafe { ring.push(&entry) };
        assert_eq!(ring.enter(1, 0, None).unwrap(), 1);
    }

    fn is_readable(fd: &OwnedFd) -> bool {
        let wait = PollTime { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait)).unwrap() == 1
    }

    #[test]
    fn both_kinds_signal_their_completions() {
        for single_thread in [false, true] {
            let Some(mut ring) = ring(Setup { single_thread, ..Setup::default() }) else { return };
            assert_eq!(ring.flags().contains(&"DEFER_TASKRUN"), single_thread);
            assert_eq!((ring.entries(), ring.completions(), ring.room()), (128, 512, 128));
            let wake = ring.wake_fd().unwrap();
            submit(&mut ring, 7);
            assert!(is_readable(&wake), "single thread: {single_thread}");
            let mut done = Vec::new();
            while done.is_empty() {
                if ring.reap(&mut done) {
                    ring.enter(0, 0, None).unwrap();
                }
            }
            assert_eq!(done, [Completion { key: 7, result: Ok(0) }]);
        }
    }

    #[test]
    fn a_ring_of_one_thread_refuses_the_others() {
        let Some(mut ring) = ring(Setup { single_thread: true, ..Setup::default() }) else { return };
        let error = thread::spawn(move || ring.enter(0, 0, None).unwrap_err()).join().unwrap();
        assert_eq!(error.raw_os_error(), Some(Errno::EXIST.raw_os_error()));
    }

    #[test]
    fn a_forked_child_knows_that_the_ring_is_not_its_own() {
        let Some(mut ring) = ring(Setup::default()) else { return };
        // SAFETY: the child calls only getpid(2) and _exit(2).
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child without running code of the parent.
            unsafe { libc::_exit(i32::from(ring.is_ours())) };
        }
        let child = Pid::from_raw(child).expect("fork failed");
        let (_, status) =
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
        assert!(ring.is_ours());
        submit(&mut ring, 7);
        assert_eq!(ring.enter(0, 1, None).unwrap(), 0);
    }

    #[test]
    fn waiting_ends_when_the_time_is_over() {
        let Some(mut ring) = ring(Setup::default()) else { return };
        assert_eq!(ring.enter(0, 1, Some(Duration::from_millis(1))).unwrap(), 0);
        ring.cancel_all(Duration::from_millis(1)).unwrap();
    }

    #[test]
    fn forked_and_started_programs_get_nothing_of_it() {
        let Some(ring) = ring(Setup::default()) else { return };
        for fd in [ring.wake_fd().unwrap().as_fd(), ring.ring.as_fd()] {
            assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut ours = maps.split("VmFlags:").zip(maps.split("VmFlags:").skip(1));
        // Other tests may create rings at the same time, so at least one of the rings must be marked.
        let is_ring = |map: &str| map.lines().any(|line| line.contains("[io_uring]"));
        assert!(ours.any(|(map, flags)| is_ring(map) && flags.lines().next().unwrap().contains(" dc")), "dontfork");
    }
}
