//! Becomes another program that ends with the one that has started it.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::options::ExecOptions;

/// Sets what survives execve(2), the CPUs and the signal at the end of the parent, and executes the program. Returns only
/// if that fails.
pub(crate) fn exec(options: &ExecOptions) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|e| format!("PR_SET_PDEATHSIG: {e}"))?;
    // The parent may have ended before that.
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != options.parent) {
        return Err("the parent has ended".to_owned());
    }
    pin(&options.cpus)?;
    let (program, arguments) = options.program.split_first().ok_or("no program")?;
    let error = Command::new(program).args(arguments).exec();
    Err(format!("{}: {error}", program.display()))
}

/// Restricts this thread, and those it starts, to CPUs.
pub(super) fn pin(cpus: &[usize]) -> Result<(), String> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).map_err(|e| format!("CPUs {cpus:?}: {e}"))
}
