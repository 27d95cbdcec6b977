//! Unit tests of `setup`.

use super::*;

#[test]
fn flags_the_kernel_does_not_take_are_given_up_one_by_one() {
    // Binding a polling thread to a CPU fails if there is no polling thread.
    let bad: Flag = ("SQ_AFF", |b| _ = b.setup_sqpoll_cpu(0));
    let flags = [bad, bad, SHARED[0]];
    match build(32, &flags) {
        Ok((_, kept)) => assert_eq!(kept, ["COOP_TASKRUN"]),
        Err(refused) => crate::skips::skip("io_uring", refused),
    }
}

#[test]
fn every_refusal_names_a_cause() {
    for (errno, cause) in [
        (Errno::NOSYS, "built without it"),
        (Errno::PERM, "seccomp"),
        (Errno::NOMEM, "ulimit -l"),
        (Errno::MFILE, "ulimit -n"),
        (Errno::INVAL, "not known"),
    ] {
        let refused = refused("io_uring_setup")(errno.into()).to_string();
        assert!(refused.starts_with("io_uring_setup: ") && refused.contains(cause), "{refused}");
    }
}
