//! `SIGPIPE` ([signal(7)](https://man7.org/linux/man-pages/man7/signal.7.html)) and calls without `MSG_NOSIGNAL`.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use rustix::io::Errno;

/// Runs `call`, which may fail with `EPIPE`, without raising `SIGPIPE` on this thread.
///
/// Rust programs ignore the signal, and then this costs nothing. In programs of other languages the default action ends
/// the process, so the signal is blocked during the call, by two more system calls. The first call decides.
pub(crate) fn without_sigpipe<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    if is_ignored() {
        return call();
    }
    let blocked = Blocked::new();
    let result = call();
    if matches!(result, Err(Errno::PIPE)) {
        blocked.discard();
    }
    result
}

fn is_ignored() -> bool {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    *IGNORED.get_or_init(|| {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: without a new action the call only writes the current one, which outlives it.
        let done = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) };
        if done != 0 {
            return false;
        }
        // SAFETY: the call has succeeded, so it has written the action.
        let action = unsafe { action.assume_init() };
        action.sa_sigaction == libc::SIG_IGN
    })
}

/// Blocks `SIGPIPE` on this thread until dropped.
struct Blocked {
    signal: libc::sigset_t,
    mask: libc::sigset_t,
    was_pending: bool,
}

impl Blocked {
    fn new() -> Self {
        let mut signal = empty();
        // SAFETY: the set is initialised, and `SIGPIPE` is a valid signal number.
        unsafe { libc::sigaddset(&raw mut signal, libc::SIGPIPE) };
        let mut mask = empty();
        // SAFETY: both sets are initialised and outlive the call.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, &raw mut mask) };
        // A signal that was not blocked cannot be pending: it would have been delivered.
        let was_pending = has(&mask) && {
            let mut pending = empty();
            // SAFETY: the set is initialised and outlives the call.
            unsafe { libc::sigpending(&raw mut pending) };
            has(&pending)
        };
        Self { signal, mask, was_pending }
    }

    fn discard(&self) {
        if self.was_pending {
            return;
        }
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: set and timeout are initialised and outlive the call; the null pointer requests no information.
        // Without a pending signal the call fails with EAGAIN.
        unsafe { libc::sigtimedwait(&raw const self.signal, ptr::null_mut(), &raw const at_once) };
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the thread's previous mask; the null pointer does not request the old one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) };
    }
}

fn empty() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the call only writes the set, which outlives it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call has initialised the set; it cannot fail.
    unsafe { set.assume_init() }
}

fn has(set: &libc::sigset_t) -> bool {
    // SAFETY: as in `new`.
    unsafe { libc::sigismember(set, libc::SIGPIPE) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{call, transfer};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    const CHILD: &str = "MILLSTREAM_TEST_SIGPIPE";

    /// Signal actions are per process, so the test runs in a process of its own.
    #[test]
    fn a_host_with_the_default_action_survives_a_peer_that_is_gone() {
        let name = "sys::signal::tests::a_host_with_the_default_action_survives_a_peer_that_is_gone";
        if std::env::var_os(CHILD).is_some() {
            return survive();
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
    }

    fn survive() {
        // SAFETY: the default action takes no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let pipe = |error: std::io::Error| Errno::from_io_error(&error);
        let sent = call::send_file(ours.as_fd(), file.as_fd(), 0, 8192);
        assert_eq!(pipe(sent.unwrap_err()), Some(Errno::PIPE));
        let spliced = |from: &std::fs::File, to: &UnixStream| {
            let (read, write) = transfer::pipe().unwrap();
            transfer::splice((from.as_fd(), Some(0)), (write.as_fd(), None), 4096).unwrap();
            transfer::splice((read.as_fd(), None), (to.as_fd(), None), 4096)
        };
        assert_eq!(pipe(spliced(&file, &ours).unwrap_err()), Some(Errno::PIPE));
        let mut mask = empty();
        // SAFETY: without a new mask the call only writes the current one, which outlives it.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask) };
        assert!(!has(&mask));
        let mut pending = empty();
        // SAFETY: the set is initialised and outlives the call.
        unsafe { libc::sigpending(&raw mut pending) };
        assert!(!has(&pending));
        // A signal that was blocked and pending before stays so.
        let blocked = Blocked::new();
        // SAFETY: the signal is blocked.
        unsafe { libc::raise(libc::SIGPIPE) };
        assert!(call::send_file(ours.as_fd(), file.as_fd(), 0, 8192).is_err());
        let mut pending = empty();
        // SAFETY: the set is initialised and outlives the call.
        unsafe { libc::sigpending(&raw mut pending) };
        assert!(has(&pending), "it was pending before");
        blocked.discard();
    }
}
