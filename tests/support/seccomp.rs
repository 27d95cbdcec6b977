//! System calls that the kernel refuses, as it does in containers.

use std::env::consts::ARCH;

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};

/// Makes the system call with the number `call` fail with `errno` in this process from now on, on every thread, those that
/// run already among them: a test runs beside the main thread. It cannot be undone, so this is for a child
/// ([`super::child`]).
///
/// seccomp(2), with `SECCOMP_FILTER_FLAG_TSYNC` and `PR_SET_NO_NEW_PRIVS`: no privilege is needed.
pub fn deny(call: libc::c_long, errno: Errno) {
    let refuse = SeccompAction::Errno(errno.raw_os_error() as u32);
    let rules = [(call, Vec::new())].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, ARCH.try_into().unwrap()).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}
