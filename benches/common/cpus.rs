//! CPUs of server and load, and CPU time.
//!
//! Shared with the package `peers`; needs only rustix.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns the CPUs of server and load: the first and the last that this process may use. `None` if there is only one;
/// then nothing is pinned.
pub(crate) fn ends() -> io::Result<Option<[usize; 2]>> {
    static ENDS: OnceLock<Option<[usize; 2]>> = OnceLock::new();
    if let Some(ends) = ENDS.get() {
        return Ok(*ends);
    }
    // Read before this process pins itself.
    let set = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    let first = cpus.next();
    Ok(*ENDS.get_or_init(|| first.zip(cpus.next_back()).map(<[usize; 2]>::from)))
}

/// Pins this thread, and those it starts later, to a CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps this thread, and those it starts later, off the server's CPU.
pub(crate) fn pin_load() -> io::Result<()> {
    ends()?.map_or(Ok(()), |[_, load]| pin(load))
}

/// Returns the CPU time of all threads of this process, including the kernel's io_uring workers.
pub(crate) fn process() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is not negative")
}
