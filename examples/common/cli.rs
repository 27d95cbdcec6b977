//! The common parts of the command lines of all examples; their options are parsed by clap. `--help` ends with status 0, a wrong
//! command line with 2, and a failure with 1.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Time for requests to finish after [`interrupted`].
#[allow(dead_code, reason = "not every example drains")]
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the exit status of a program, after it has printed the error, in the style of clap.
pub(crate) fn exit(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of CPUs of this process. Respects its CPU affinity.
#[allow(dead_code, reason = "not every example has workers")]
pub(crate) fn cpus() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Returns a future that is ready at SIGINT (Ctrl-C) or SIGTERM. From this call on, these signals do not end the process.
#[allow(dead_code, reason = "not every example drains")]
#[cfg(unix)]
pub(crate) fn interrupted() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns a future that is ready at Ctrl-C.
#[allow(dead_code, reason = "not every example drains")]
#[cfg(not(unix))]
pub(crate) fn interrupted() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// Builds a current-thread runtime for one worker, because a multi-thread runtime adds hand-overs; else one with
/// `workers` threads.
#[allow(dead_code, reason = "not every example has workers")]
pub(crate) fn runtime(workers: NonZeroUsize) -> Result<Runtime, String> {
    let mut builder = match workers.get() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(workers.get()).enable_all().build();
    runtime.map_err(|e| format!("the runtime did not start: {e}"))
}
