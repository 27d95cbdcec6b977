//! The profile for containers whose services use io_uring, `examples/serve/seccomp.json`, as the kernel enforces it.

use std::io::ErrorKind;
use std::os::unix::fs::chroot;

use millstream::metrics::Snapshot;
use millstream::runtime::DriverBuilder;
use serde_json::Value;
use testkit::{child, seccomp};

use super::driver::{has_ring, runtime, two_hundred_operations};

fn profile() -> Value {
    serde_json::from_str(include_str!("../../examples/serve/seccomp.json")).unwrap()
}

/// Installs a profile, and sees that a call that it does not list fails although this process may be root's.
fn install(profile: &Value) {
    let enter_nowhere = || chroot("/nonexistent").unwrap_err().kind();
    assert_eq!(enter_nowhere(), ErrorKind::NotFound);
    seccomp::install(profile);
    assert_eq!(enter_nowhere(), ErrorKind::PermissionDenied);
}

#[test]
fn the_profile_allows_the_ring_and_refuses_other_calls() {
    if child::task().is_none() {
        if has_ring() {
            child::run(&mut child::command("containers::the_profile_allows_the_ring_and_refuses_other_calls", ""));
        }
        return;
    }
    install(&profile());
    let info = runtime(DriverBuilder::new()).block_on(two_hundred_operations());
    assert_eq!(info.rings(), 1, "{info}");
}

#[test]
fn without_the_calls_of_the_ring_files_go_to_the_blocking_pool() {
    if child::task().is_none() {
        if has_ring() {
            child::run(&mut child::command(
                "containers::without_the_calls_of_the_ring_files_go_to_the_blocking_pool",
                "",
            ));
        }
        return;
    }
    let mut profile = profile();
    let groups = profile["syscalls"].as_array_mut().unwrap();
    let before = groups.len();
    groups.retain(|group| group["names"][0] != "io_uring_setup");
    assert_eq!(groups.len(), before - 1);
    install(&profile);
    let info = runtime(DriverBuilder::new()).block_on(two_hundred_operations());
    assert_eq!(info.rings(), 0);
    assert!(info.reason().unwrap().contains("Operation not permitted"), "{info}");
    assert!(Snapshot::now().pool_programs >= 200);
}
