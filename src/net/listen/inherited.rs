//! Options that connections inherit from the socket of their listener.

use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};
use crate::sys::{socket, tcp};

#[derive(Clone, Debug)]
pub(super) struct Inherited {
    pub(super) send_timeout: Option<Duration>,
    pub(super) keep_alive: Option<Duration>,
    pub(super) congestion: Option<Box<str>>,
    pub(super) pace: Option<NonZeroU64>,
}

impl Default for Inherited {
    fn default() -> Self {
        Self { send_timeout: None, keep_alive: Some(Duration::from_secs(60)), congestion: None, pace: None }
    }
}

impl Inherited {
    /// Sets the options and `TCP_NODELAY`.
    pub(super) fn set(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        socket::set_nodelay(socket, true)?;
        if let Some(limit) = self.send_timeout {
            socket::give_up_after(socket, limit);
        }
        if let Some(idle) = self.keep_alive {
            socket::keep_alive(socket, idle)?;
        }
        if let Some(name) = &self.congestion {
            tcp::set_congestion(socket, name)?;
        }
        if let Some(rate) = self.pace {
            tcp::set_pacing(socket, Some(rate))?;
        }
        Ok(())
    }
}

/// Connections that were established before their listener had its options.
#[derive(Debug)]
pub(super) struct EarlyConnections {
    inherited: Inherited,
    /// Whether all of them have been accepted. The kernel hands connections out in the order in which they were
    /// established, so all have been when there is none to accept.
    all_accepted: AtomicBool,
}

impl EarlyConnections {
    pub(super) fn new(inherited: Inherited) -> Self {
        Self { inherited, all_accepted: AtomicBool::new(false) }
    }

    pub(super) fn all_accepted(&self) -> bool {
        self.all_accepted.load(Ordering::Acquire)
    }

    /// Accepts a connection, and sets its options if it may be an early one.
    pub(super) fn accept<A>(&self, accept: impl FnOnce() -> io::Result<(OwnedFd, A)>) -> io::Result<(OwnedFd, A)> {
        // Read before the call: another thread may find none left after this one has taken the last.
        let all_accepted = self.all_accepted();
        let accepted = accept();
        match &accepted {
            // An error means that the peer has gone, which the first read tells.
            Ok((fd, _)) if !all_accepted => drop(self.inherited.set(fd.as_fd())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.all_accepted.store(true, Ordering::Release),
            _ => {}
        }
        accepted
    }
}
