//! State of a TCP connection in the kernel, and its send options
//! ([tcp(7)](https://man7.org/linux/man-pages/man7/tcp.7.html)).

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use socket2::SockRef;

use super::tcp_info::TcpInfo;

/// Parses the part of `struct tcp_info` (`<linux/tcp.h>`) that the kernel filled in; new versions append fields.
fn parse(answer: &[u8]) -> TcpInfo {
    let short = |at: usize| answer.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    let long = |at: usize| {
        let bytes = answer.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let micros = |at| Duration::from_micros(short(at).into());
    // Before the first sample the kernel reports the maximum.
    let min_rtt = if short(148) == u32::MAX { Duration::ZERO } else { micros(148) };
    TcpInfo {
        rtt: micros(68),
        rtt_var: micros(72),
        min_rtt,
        cwnd: short(80),
        mss: short(16),
        unacked: short(24),
        not_sent: short(144),
        retransmits: short(100),
        delivery_rate: long(160),
    }
}

/// Returns `TCP_INFO` of a socket, or `None` if it is not TCP or the kernel does not report it.
pub(crate) fn info(socket: BorrowedFd<'_>) -> Option<TcpInfo> {
    let mut answer = [0u8; 256];
    let mut len = answer.len() as libc::socklen_t;
    // SAFETY: `answer` has the size `len`; both outlive the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            answer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let filled = answer.get(..len as usize).filter(|_| done == 0)?;
    Some(parse(filled))
}

/// Returns the bytes that the peer has not acknowledged (`SIOCOUTQ`); for a Unix socket, the memory of unread bytes.
pub(crate) fn unconfirmed(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut bytes: c_int = 0;
    // SIOCOUTQ has the number of TIOCOUTQ.
    // SAFETY: the call writes one `int`, which outlives it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { usize::try_from(bytes).ok() } else { None }
}

/// Returns the number of received bytes that are unread (`SIOCINQ`, or `FIONREAD`).
pub(crate) fn unread(socket: BorrowedFd<'_>) -> Option<usize> {
    let bytes = rustix::io::ioctl_fionread(socket).ok()?;
    usize::try_from(bytes).ok()
}

/// Limits the unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`); `None` is the system default. Fails without TCP.
pub(crate) fn set_not_sent_low(socket: BorrowedFd<'_>, bytes: Option<u32>) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_notsent_lowat(bytes.unwrap_or(0))
}

/// Limits the send buffer (`SO_SNDBUF`, [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)), which no
/// longer adapts; the kernel doubles the value for its overhead and caps it at `net.core.wmem_max`.
pub(crate) fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    SockRef::from(&socket).set_send_buffer_size(bytes)
}

/// Lets the send buffer adapt again (`SO_BUF_LOCK`, Linux 5.14). Older kernels: sets the largest size.
pub(crate) fn free_send_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    const SO_BUF_LOCK: c_int = 72;
    const SEND: c_int = 1;
    let mut locked: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
    // SAFETY: option and length are `int`s that outlive the call.
    let told = unsafe { libc::getsockopt(fd, level, SO_BUF_LOCK, (&raw mut locked).cast(), &raw mut len) };
    if told != 0 {
        return set_send_buffer(socket, 4 << 20);
    }
    if locked & SEND == 0 {
        return Ok(());
    }
    locked &= !SEND;
    // SAFETY: the option is an `int`, which outlives the call.
    let done = unsafe { libc::setsockopt(fd, level, SO_BUF_LOCK, (&raw const locked).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Limits the send rate in bytes per second (`SO_MAX_PACING_RATE`, socket(7)); `None` removes the limit. Fails with
/// `Unsupported` if the socket is not TCP: only TCP paces by itself.
pub(crate) fn set_pacing(socket: BorrowedFd<'_>, rate: Option<NonZeroU64>) -> io::Result<()> {
    // Other sockets accept the option without effect.
    if info(socket).is_none() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel paces TCP connections only"));
    }
    let rate = rate.map_or(u64::MAX, NonZeroU64::get);
    let set = |value: *const libc::c_void, len: usize| {
        // SAFETY: `value` points to `len` bytes that outlive the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                value,
                len as libc::socklen_t,
            )
        }
    };
    // The option has 32 bits before Linux 4.20.
    let narrow = u32::try_from(rate).unwrap_or(u32::MAX);
    if set((&raw const rate).cast(), size_of::<u64>()) == 0 || set((&raw const narrow).cast(), size_of::<u32>()) == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

pub(crate) fn congestion(socket: BorrowedFd<'_>) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

pub(crate) fn set_congestion(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let list = |of: &str| {
            let names = std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{of}_congestion_control"));
            names.map_or_else(|_| "unknown".to_owned(), |names| names.trim().to_owned())
        };
        let (have, allowed) = (list("available"), list("allowed"));
        let why = match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => "the kernel does not have it, or its module is not loaded",
            Some(Errno::PERM) => "this process may not use it",
            Some(Errno::OPNOTSUPP | Errno::NOPROTOOPT) => "the socket is not TCP",
            _ => "refused",
        };
        let message = format!(
            "congestion control `{name}`: {why} ({error}); the kernel offers {have}, and allows {allowed} to every process"
        );
        io::Error::new(error.kind(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn the_kernel_reports_a_connection() {
        let (mut ours, mut theirs) = pair();
        ours.write_all(&[1; 1000]).unwrap();
        theirs.read_exact(&mut [0; 1000]).unwrap();
        // The acknowledgement may arrive a little later.
        while unconfirmed(ours.as_fd()).unwrap() > 0 {}
        let told = info(ours.as_fd()).unwrap();
        assert!(told.rtt > Duration::ZERO && told.rtt < Duration::from_secs(10), "{told:?}");
        assert!(told.mss >= 500 && told.cwnd >= 1, "{told:?}");
        assert_eq!((told.unacked, told.not_sent), (0, 0), "{told:?}");
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(info(unix.as_fd()), None);
        assert_eq!(unconfirmed(unix.as_fd()), Some(0));
    }

    #[test]
    fn bytes_in_the_kernel_are_counted() {
        let (ours, _theirs) = pair();
        ours.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(n) = (&ours).write(&[0; 100_000]) {
            written += n;
        }
        let waits = unconfirmed(ours.as_fd()).unwrap();
        let told = info(ours.as_fd()).unwrap();
        assert!(waits > 0 && waits <= written, "{waits} of {written}");
        assert!(told.not_sent as usize <= waits && told.not_sent > 0, "{told:?}, {waits}");
    }

    #[test]
    fn an_older_kernel_says_less() {
        let mut answer = [0u8; 232];
        for (at, value) in [(16, 1448u32), (68, 40_000), (80, 10), (100, 3), (144, 7), (148, 30_000)] {
            answer[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        answer[160..168].copy_from_slice(&(1u64 << 40).to_ne_bytes());
        let new = parse(&answer);
        assert_eq!((new.mss, new.cwnd, new.retransmits, new.not_sent), (1448, 10, 3, 7));
        assert_eq!(
            (new.rtt, new.min_rtt, new.delivery_rate),
            (Duration::from_millis(40), Duration::from_millis(30), 1 << 40)
        );
        // Linux 2.6.39, 4.6, and an answer that ends inside a field.
        let old = parse(&answer[..104]);
        assert_eq!((old.retransmits, old.not_sent, old.delivery_rate), (3, 0, 0));
        assert_eq!(parse(&answer[..148]).not_sent, 7);
        let cut = parse(&answer[..162]);
        assert_eq!((cut.min_rtt, cut.delivery_rate), (Duration::from_millis(30), 0));
        assert_eq!(parse(&[]), TcpInfo::default());
    }

    #[test]
    fn congestion_control_goes_by_name_and_errors_list_the_names() {
        let (ours, _theirs) = pair();
        let name = congestion(ours.as_fd()).unwrap();
        set_congestion(ours.as_fd(), &name).unwrap();
        let error = set_congestion(ours.as_fd(), "no_such_thing").unwrap_err();
        assert!(error.to_string().contains(&name) && error.to_string().contains("no_such_thing"), "{error}");
        assert_eq!(congestion(ours.as_fd()).unwrap(), name, "unchanged");
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let error = set_congestion(unix.as_fd(), &name).unwrap_err();
        assert!(error.to_string().contains("not TCP"), "{error}");
    }

    #[test]
    fn the_kernel_paces_tcp_alone() {
        let (ours, _theirs) = pair();
        set_pacing(ours.as_fd(), NonZeroU64::new(1 << 20)).unwrap();
        set_pacing(ours.as_fd(), None).unwrap();
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(set_pacing(unix.as_fd(), NonZeroU64::new(1)).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
