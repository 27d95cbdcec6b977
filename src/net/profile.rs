//! Sockets that fit the peer: how much the kernel may hold of what is sent, and for which connections.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::sys::tcp;

/// Round trips from which on a peer counts as far away, and below which one that did no longer does.
const FAR: Duration = Duration::from_millis(50);
const NEAR: Duration = Duration::from_millis(40);

/// Bytes of what cannot be sent yet that the kernel takes for a peer nearby.
const NOT_SENT_LOW: u32 = 16 << 10;
/// Its send buffer for one.
const SEND_BUFFER: usize = 256 << 10;

/// How much the kernel holds of what is sent on a TCP connection. What it does not hold waits in the stream, where
/// [`high_mark`](super::TcpListenerBuilder::high_mark) bounds it, and then with whoever writes.
///
/// Unix sockets have no such thing: there a profile is kept and nothing else happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// As the system has it (`net.ipv4.tcp_wmem`, `net.ipv4.tcp_notsent_lowat`).
    #[default]
    System,
    /// Little: at most 16 KiB that cannot be sent yet (`TCP_NOTSENT_LOWAT`,
    /// [tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)), in a send buffer of 256 KiB. What is written last leaves
    /// soon, a reader that is slow holds little memory, and bulk over long distances is slow.
    Latency,
    /// Much: as the system has it, in a send buffer that grows with the connection.
    Bulk,
    /// [`Latency`](Self::Latency) for a peer whose round trip is shorter than 50 ms, else [`Bulk`](Self::Bulk). The kernel
    /// is asked for it (`TCP_INFO`) by a flush when 64 KiB were sent, and then each time that as much again was sent, 4 MiB at
    /// most; never by a timer. Until then as the system has it. One that was far away stays so down to 40 ms.
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

    /// Has a socket be like that, if it is TCP. `Auto` is to be decided by [`fitting`](Self::fitting) first.
    pub(super) fn apply(self, socket: BorrowedFd<'_>) {
        let small = self == Self::Latency;
        if tcp::set_not_sent_low(socket, small.then_some(NOT_SENT_LOW)).is_err() {
            return;
        }
        // Neither changes what is sent, so a refusal is no reason to fail.
        let _ = match small {
            true => tcp::set_send_buffer(socket, SEND_BUFFER),
            false => tcp::free_send_buffer(socket),
        };
    }

    /// What fits a peer with such a round trip, given what it is now.
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

    /// Reads the name that [`Display`](fmt::Display) writes; `ErrorKind::InvalidInput` lists them all.
    fn from_str(name: &str) -> io::Result<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is no profile: use one of {names}"))
        })
    }
}

/// The profile of one stream, which may be changed at any time by anybody.
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

/// Changes the profile of a share of the connections that a listener accepts from now on, to try it on some of them. From
/// [`switch`](super::TcpListenerBuilder::switch) of a builder, whose clones and whose listeners all share it, or of a
/// listener. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ProfileSwitch(Arc<Share>);

#[derive(Debug, Default)]
struct Share {
    /// The profile in the upper half, the percentage in the lower.
    wanted: AtomicU32,
    /// Connections accepted since there was a share.
    accepted: AtomicU32,
}

impl ProfileSwitch {
    /// Gives `percent` of a hundred new connections this profile, at most all of them; the others get the listener's. They
    /// are spread evenly: with 25 it is every fourth. Connections that live keep theirs.
    pub fn set(&self, profile: Profile, percent: u8) {
        let wanted = u32::from(profile as u8) << 16 | u32::from(percent.min(100));
        self.0.wanted.store(wanted, Ordering::Relaxed);
    }

    /// The profile and the percentage that were last set; at first 0 %.
    pub fn get(&self) -> (Profile, u8) {
        let wanted = self.0.wanted.load(Ordering::Relaxed);
        (Profile::from_number((wanted >> 16) as u8), wanted as u8)
    }

    /// The profile of the next connection, if it is one of the share.
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
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_by_the_names_they_are_written_by() {
        for (n, profile) in Profile::ALL.into_iter().enumerate() {
            assert_eq!(profile as usize, n, "the place of {profile}");
            assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
        }
        let error = "fast".parse::<Profile>().unwrap_err().to_string();
        assert_eq!(error, "`fast` is no profile: use one of system, latency, bulk, auto");
    }

    #[test]
    fn the_round_trip_decides_and_does_not_flap() {
        let fitting = |ms, now| Profile::fitting(Duration::from_millis(ms), now);
        for now in [Profile::System, Profile::Latency, Profile::Auto] {
            assert_eq!((fitting(49, now), fitting(50, now)), (Profile::Latency, Profile::Bulk));
        }
        assert_eq!((fitting(40, Profile::Bulk), fitting(39, Profile::Bulk)), (Profile::Bulk, Profile::Latency));
    }

    #[test]
    fn a_share_is_exact_and_spread() {
        for percent in [0, 1, 5, 25, 33, 50, 99, 100, 200] {
            let switch = ProfileSwitch::default();
            assert!(switch.next().is_none());
            switch.set(Profile::Bulk, percent);
            assert_eq!(switch.get(), (Profile::Bulk, percent.min(100)));
            let picked: Vec<usize> = (0..300).filter(|_| switch.clone().next() == Some(Profile::Bulk)).collect();
            let share = usize::from(percent.min(100));
            assert_eq!(picked.len(), 3 * share, "{percent} %");
            let farthest = picked.windows(2).map(|two| two[1] - two[0]).max().unwrap_or(0);
            assert!(share == 0 || farthest <= 100usize.div_ceil(share), "{percent} %: {farthest} apart");
        }
    }
}
