//! System calls refused by the kernel, as in containers.

use std::env::consts::ARCH;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// Makes the system call with the number `call` fail with `errno` in this process from now on. Applies to all threads,
/// including running ones: a test runs beside the main thread. This cannot be undone, so call it in a child
/// ([`crate::child`]).
///
/// seccomp(2), with `SECCOMP_FILTER_FLAG_TSYNC` and `PR_SET_NO_NEW_PRIVS`; no privilege is needed.
pub fn deny(call: libc::c_long, errno: Errno) {
    answer(call, Vec::new(), errno.raw_os_error());
}

/// Makes every `preadv2` with `RWF_NOWAIT` succeed with 0 bytes, which Linux 5.10 returns in the middle of a file at a
/// page that is still being read ahead. Applies like [`deny`].
pub fn nowait_reads_nothing() {
    const FLAGS: u8 = 5;
    let nowait = u64::from(libc::RWF_NOWAIT.cast_unsigned());
    let is_nowait = SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(nowait), nowait);
    // An error of 0 is a result of 0.
    answer(libc::SYS_preadv2, vec![SeccompRule::new(vec![is_nowait.unwrap()]).unwrap()], 0);
}

/// Makes a system call that returns a number of moved bytes return 0. Applies like [`deny`].
pub fn moves_nothing(call: libc::c_long) {
    answer(call, Vec::new(), 0);
}

fn answer(call: libc::c_long, rules: Vec<SeccompRule>, errno: i32) {
    let action = SeccompAction::Errno(errno.cast_unsigned());
    let rules = [(call, rules)].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, ARCH.try_into().unwrap()).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}
