//! Which CPU a server runs on and which its load, and CPU time.
//!
//! Shared with the package `peers`; needs rustix and nothing else.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The CPUs of server and load: the first this process may use and the last. `None` if there is only one, and then nothing
/// is pinned.
pub(crate) fn ends() -> io::Result<Option<[usize; 2]>> {
    static ENDS: OnceLock<Option<[usize; 2]>> = OnceLock::new();
    if let Some(ends) = ENDS.get() {
        return Ok(*ends);
    }
    // Asked before this process pins itself.
    let set = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    let first = cpus.next();
    Ok(*ENDS.get_or_init(|| first.zip(cpus.next_back()).map(<[usize; 2]>::from)))
}

/// Keeps this thread, and those it starts from now on, on a CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps this thread, and those it starts from now on, away from the server's CPU.
pub(crate) fn pin_load() -> io::Result<()> {
    ends()?.map_or(Ok(()), |[_, load]| pin(load))
}

/// CPU time of this process: all of its threads, those the kernel runs for its rings included.
pub(crate) fn process() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is not negative")
}
