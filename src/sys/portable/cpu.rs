//! CPU affinity of threads, which std does not offer.

use std::io;

use super::unsupported;

pub(crate) fn allowed() -> io::Result<Vec<usize>> {
    Err(unsupported("threads are not pinned to CPUs"))
}

pub(crate) fn stay_on(_: &[usize]) -> io::Result<()> {
    Err(unsupported("threads are not pinned to CPUs"))
}
