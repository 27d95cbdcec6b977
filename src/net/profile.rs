//! Socket profiles: how much unsent data the kernel holds, and for which connections.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::sys::fd::BorrowedFd;
use crate::sys::tcp;

/// Round-trip times: a peer becomes far at `FAR` or more, and near again below `NEAR`.
const FAR: Duration = Duration::from_millis(50);
const NEAR: Duration = Duration::from_millis(40);

/// Maximum number of unsent bytes in the kernel for a near peer.
const NOT_SENT_LOW: u32 = 16 << 10;
/// Send buffer for a near peer, in bytes.
const SEND_BUFFER: usize = 256 << 10;

/// How much unsent data the kernel holds for a TCP connection. Other bytes wait in the stream, up to
/// [`high_mark`](super::TcpListenerBuilder::high_mark), and then in the writer.
///
/// Unix sockets store the profile without effect, and so do all sockets on other systems than Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// The system's defaults (`net.ipv4.tcp_wmem`, `net.ipv4.tcp_notsent_lowat`).
    #[default]
    System,
    /// Little: at most 16 KiB of unsent bytes (`TCP_NOTSENT_LOWAT`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)) and a send buffer of 256 KiB. New bytes leave soon
    /// and slow readers hold little memory, but bulk transfers over long distances are slow.
    Latency,
    /// Much: the system's defaults, with a send buffer that grows with the connection.
    Bulk,
    /// [`Latency`](Self::Latency) for a peer with a round-trip time below 50 ms, else [`Bulk`](Self::Bulk). Flushes
    /// query the time (`TCP_INFO`) after 64 KiB, and then whenever the amount sent has doubled or grown by 4 MiB; no
    /// timer is used. The system's defaults apply before the first query. A far peer stays far down to 40 ms.
    Auto,
}

impl Profile {
    const ALL: [Self; 4] = [Self::System, Self::Latency, Self::Bulk, Self::Auto];

    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Latency => "latency",
            Self::Bulk => "bulk",
            Self::Auto => "auto",
        }
    }

    fn from_number(n: u8) -> Self {
        Self::ALL[usize::from(n)]
    }

    /// Applies the profile to a TCP socket. Resolve `Auto` by [`fitting`](Self::fitting) first.
    pub(super) fn apply(self, socket: BorrowedFd<'_>) {
        let small = self == Self::Latency;
        if tcp::set_not_sent_low(socket, small.then_some(NOT_SENT_LOW)).is_err() {
            return;
        }
        // A failure is ignored, because the options do not change the bytes sent.
        let _ = match small {
            true => tcp::set_send_buffer(socket, SEND_BUFFER),
            false => tcp::free_send_buffer(socket),
        };
    }

    pub(super) fn fitting(rtt: Duration, now: Self) -> Self {
        let far = if now == Self::Bulk { NEAR } else { FAR };
        if rtt >= far { Self::Bulk } else { Self::Latency }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Profile {
    type Err = io::Error;

    /// Parses the name written by [`Display`](fmt::Display); the error, `ErrorKind::InvalidInput`, lists all names.
    fn from_str(name: &str) -> io::Result<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not a profile; use one of {names}"))
        })
    }
}

#[derive(Debug)]
pub(super) struct ProfileCell(AtomicU8);

impl ProfileCell {
    pub(super) fn new(profile: Profile) -> Self {
        Self(AtomicU8::new(profile as u8))
    }

    pub(super) fn get(&self) -> Profile {
        Profile::from_number(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, profile: Profile) {
        self.0.store(profile as u8, Ordering::Relaxed);
    }
}

/// Changes the profile of a share of new connections, for trials. Cheap to clone. Created by
/// [`profile_switch`](super::TcpListenerBuilder::profile_switch) of a listener, or of a builder, whose clones and
/// listeners share it.
#[derive(Clone, Debug, Default)]
pub struct ProfileSwitch(Arc<Share>);

#[derive(Debug, Default)]
struct Share {
    /// The profile in the upper half, the percentage in the lower.
    wanted: AtomicU32,
    /// Number of connections accepted since the share was first set.
    accepted: AtomicU32,
}

impl ProfileSwitch {
    /// Gives `percent` of 100 new connections this profile, at most all of them, and the others that of the listener.
    /// The share is spread evenly: 25 selects every fourth. Live connections are unchanged.
    pub fn set(&self, profile: Profile, percent: u8) {
        let wanted = u32::from(profile as u8) << 16 | u32::from(percent.min(100));
        self.0.wanted.store(wanted, Ordering::Relaxed);
    }

    /// Returns the profile and the percentage that were last set; initially 0 %.
    pub fn get(&self) -> (Profile, u8) {
        let wanted = self.0.wanted.load(Ordering::Relaxed);
        (Profile::from_number((wanted >> 16) as u8), wanted as u8)
    }

    pub(super) fn next(&self) -> Option<Profile> {
        let (profile, percent) = self.get();
        if percent == 0 {
            return None;
        }
        let n = self.0.accepted.fetch_add(1, Ordering::Relaxed) % 100;
        let share = |n: u32| n * u32::from(percent) / 100;
        (share(n + 1) > share(n)).then_some(profile)
    }
}

#[cfg(test)]
mod tests;
