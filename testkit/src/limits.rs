//! Limits of an unprivileged service.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Removes all locked memory: sets `RLIMIT_MEMLOCK` to 0 for this process, and drops all capabilities of this thread,
/// including `CAP_IPC_LOCK`, which would lift the limit. Threads started later have none either; threads that already
/// run keep theirs. This cannot be undone, so call it in a child ([`crate::child`]), before a runtime is created.
///
/// The user id stays: the kernel checks limit and capability, not the user. So a program of root need not be readable
/// by other users.
pub fn drop_memlock() {
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    drop_capabilities();
}

/// Drops every capability of this thread and of the threads it starts.
pub fn drop_capabilities() {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
}
