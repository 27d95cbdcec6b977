//! What an unprivileged service may not have.

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Takes away every byte of locked memory: `RLIMIT_MEMLOCK` is 0 for this process, and this thread has no capability any
/// more, `CAP_IPC_LOCK` among them, which would lift the limit. Threads that it starts have none either; those that run
/// already keep theirs. It cannot be undone, so this is for a child ([`super::child`]), before a runtime is made.
///
/// The user stays the same: the kernel asks for limit and capability, not for a name. A program of root need not be
/// readable by anybody else for it.
pub fn drop_memlock() {
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    drop_capabilities();
}

/// Takes every capability from this thread, and from those that it starts.
pub fn drop_capabilities() {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
}
