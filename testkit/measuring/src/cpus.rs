//! CPUs of server and load, and CPU time.

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns the CPUs of server and load: the first and the last that this process may use. `None` if there is only one;
/// then nothing is pinned.
pub fn ends() -> io::Result<Option<[usize; 2]>> {
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
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Keeps this thread, and those it starts later, off the server's CPU.
pub fn pin_load() -> io::Result<()> {
    ends()?.map_or(Ok(()), |[_, load]| pin(load))
}

/// Returns the CPU time of all threads of this process, including the kernel's io_uring workers.
pub fn process() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("CPU time is not negative")
}

/// Returns the user and system time of all threads of a process, proc_pid_stat(5), in steps of a tick, with threads that
/// have ended.
pub fn of_process(pid: u32) -> io::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path)?;
    // The name in field 2 may hold spaces and brackets; field 3 follows the last bracket.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_ascii_whitespace().skip(14 - 3).map(str::parse::<u64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(tick() * u32::try_from(user + system).unwrap_or(u32::MAX)),
        _ => Err(io::Error::other(format!("{path} has no times in fields 14 and 15"))),
    }
}

/// Returns the step of [`of_process`].
pub fn tick() -> Duration {
    Duration::from_secs(1) / rustix::param::clock_ticks_per_second().max(1) as u32
}
