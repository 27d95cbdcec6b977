//! A process that starts the next one: the same program again.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::time::{ClockId, clock_gettime};
use tokio::process::Command;

use crate::manager::{announce, notify};

/// Starts this program again, from the same path and with the same arguments: after a deploy, the next version of it.
/// Returns when that process has ended and has not taken the place of this one, with the reason.
///
/// Call it beside [`Serving::successor`](crate::Serving::successor), for instance at SIGUSR2, and drop the future when a
/// successor is ready. The process goes on then.
///
/// ```no_run
/// # async fn serve(serving: millstream_handoff::Serving) {
/// tokio::select! {
///     () = serving.successor() => {}
///     error = millstream_handoff::start_successor() => eprintln!("the next process: {error}"),
/// }
/// # }
/// ```
///
/// A path with links is not resolved before, so that a deploy may switch a link. The process inherits the environment,
/// the working directory and the standard streams, but not the descriptors of a service manager. A service manager is told that
/// the service reloads (`RELOADING=1`), and when that is over (`READY=1`).
///
/// In a container this process must not be the one with the number 1, whose end is the end of the container.
///
/// # Panics
///
/// Panics outside a tokio runtime with I/O and time enabled.
pub async fn start_successor() -> io::Error {
    let since = clock_gettime(ClockId::Monotonic);
    let micros = since.tv_sec * 1_000_000 + since.tv_nsec / 1000;
    // Without a manager that hears it, the successor starts all the same.
    let _ = notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}")).await;
    let error = run().await.map_or_else(|e| e, |status| io::Error::other(format!("it has ended with {status}")));
    announce().await;
    error
}

async fn run() -> io::Result<ExitStatus> {
    command()?.spawn()?.wait().await
}

fn command() -> io::Result<Command> {
    let mut args = std::env::args_os();
    let program = args.next().ok_or_else(|| io::Error::other("the path of this program is not known"))?;
    let mut command = Command::new(program);
    // They belong to this process. Its number may be that of a later one.
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    Ok(command)
}

#[cfg(test)]
mod tests;
