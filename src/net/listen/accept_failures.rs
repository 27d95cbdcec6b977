//! Errors of accept: which are skipped, which need a pause, and which end the listener.

use std::io;
use std::time::Duration;

use crate::counters::log;
use crate::counters::{Counter, count};
use crate::sys::errno::Errno;

/// Pause after running out of descriptors or memory.
pub(in crate::net) const PAUSE: Duration = Duration::from_millis(50);
/// Number of consecutive failed connections after which accepting pauses too: the cause may affect all connections.
pub(super) const FAILED_MAX: u32 = 16;

/// Consecutive failures to accept.
#[derive(Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Waits until the listener may be asked again, or returns the error if it concerns the listener itself.
    pub(in crate::net) async fn wait(&mut self, error: io::Error) -> io::Result<()> {
        if self.need_pause(error)? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    pub(super) fn need_pause(&mut self, error: io::Error) -> io::Result<bool> {
        match after(&error) {
            After::Next if self.0 < FAILED_MAX => {
                self.0 += 1;
                Ok(false)
            }
            After::Next | After::Pause => {
                self.0 = 0;
                count(Counter::AcceptPauses, 1);
                log::accept_paused(&error);
                Ok(true)
            }
            After::Give => Err(error),
        }
    }
}

/// Reaction to a failed accept.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// Accept the next connection: only this one failed.
    Next,
    /// Pause until resources are freed.
    Pause,
    /// Return the error: the listener is broken.
    Give,
}

/// Classifies errors, including errors of the new socket that Linux reports here,
/// [accept(2)](https://man7.org/linux/man-pages/man2/accept.2.html).
fn after(error: &io::Error) -> After {
    match Errno::from_io_error(error) {
        Some(
            Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::NONET
            | Errno::TIMEDOUT
            // A firewall rejects this connection.
            | Errno::PERM,
        ) => After::Next,
        // NOSPC: the limit of epoll watches (fs.epoll.max_user_watches).
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) => After::Pause,
        _ => After::Give,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_errors_are_retried() {
        for (errno, expected) in [
            (Errno::CONNABORTED, After::Next),
            (Errno::PROTO, After::Next),
            (Errno::HOSTUNREACH, After::Next),
            (Errno::PERM, After::Next),
            (Errno::ACCESS, After::Give),
            (Errno::IO, After::Give),
            (Errno::OPNOTSUPP, After::Give),
            (Errno::MFILE, After::Pause),
            (Errno::NFILE, After::Pause),
            (Errno::NOMEM, After::Pause),
            (Errno::BADF, After::Give),
            (Errno::INVAL, After::Give),
        ] {
            assert_eq!(after(&errno.into()), expected, "{errno}");
        }
    }
}
