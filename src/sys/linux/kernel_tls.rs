//! TLS records that the kernel makes: [kernel TLS](https://docs.kernel.org/networking/tls.html), for TLS 1.3. Only the
//! sending side is used.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use zeroize::Zeroizing;

use super::socket;
use super::tls_keys::{Cipher, Keys};

// Of <linux/tls.h>; libc has only some of them.
const TLS_TX: c_int = 1;
const TLS_SET_RECORD_TYPE: c_int = 1;
const TLS_1_3: u16 = 0x0304;

/// The oldest kernel on which the tests pass. On 6.1 some transfers stop: before Linux 6.5 `sendfile` may leave its
/// last record open.
const OLDEST: (u32, u32) = (6, 12);
/// The first kernel that replaces keys.
const REPLACES_KEYS: (u32, u32) = (6, 14);
/// Maximum number of encrypted bytes that remain in the kernel's TLS if the socket is full: a partly sent record, and
/// the one after it.
const PENDING: usize = 64 << 10;

/// Returns the kernel's number of a cipher, and how many bytes of the nonce are its salt.
fn numbers(cipher: Cipher) -> (u16, usize) {
    match cipher {
        Cipher::Aes128Gcm => (51, 4),
        Cipher::Aes256Gcm => (52, 4),
        Cipher::Chacha20Poly1305 => (54, 0),
    }
}

const WITHOUT_MODULE: &str = "the kernel's module `tls` is not loaded; `modprobe tls`, if the kernel has it";

/// Makes the kernel encrypt everything that is sent from now on. Calls after the first replace the keys, which needs
/// Linux 6.14. After an error the socket sends as before.
pub(crate) fn encrypt(socket: BorrowedFd<'_>, keys: &Keys) -> io::Result<()> {
    if let Err(e) = set_option(socket, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls") {
        match Errno::from_io_error(&e) {
            Some(Errno::EXIST) => {}
            Some(Errno::NOENT) => return Err(io::Error::new(e.kind(), WITHOUT_MODULE)),
            _ => return Err(e),
        }
    }
    set_option(socket, libc::SOL_TLS, TLS_TX, &crypto_info(keys)).map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::NOENT) => io::Error::new(e.kind(), format!("the kernel has no {:?}", keys.cipher)),
        _ => e,
    })
}

/// Returns `struct tls12_crypto_info_aes_gcm_128`, or the one of the cipher: version, cipher, nonce without its salt,
/// key, salt, number of the next record.
fn crypto_info(keys: &Keys) -> Zeroizing<Vec<u8>> {
    assert!(keys.key.len() == keys.cipher.key_len(), "internal: a key of {} bytes", keys.key.len());
    let (number, salt) = numbers(keys.cipher);
    let (salt, rest) = keys.nonce.split_at(salt);
    let parts: [&[u8]; 6] =
        [&TLS_1_3.to_ne_bytes(), &number.to_ne_bytes(), rest, &keys.key, salt, &keys.sequence.to_be_bytes()];
    // Never grows, so no copy of the key is left behind.
    let mut info = Zeroizing::new(Vec::with_capacity(64));
    parts.iter().for_each(|part| info.extend_from_slice(part));
    info
}

fn set_option(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: `value` has `len` bytes and outlives the call, which only reads it.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends `bytes` as one record of this type (RFC 8446 §5.1), in place of application data. All bytes or none are
/// accepted.
pub(crate) fn send_record(socket: BorrowedFd<'_>, content_type: u8, bytes: &[u8]) -> io::Result<usize> {
    /// A control message with one byte of data, which follows its header (cmsg(3)).
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        content_type: u8,
    }
    const _: () = assert!(std::mem::offset_of!(Control, content_type) == size_of::<libc::cmsghdr>());

    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut control: Control = unsafe { std::mem::zeroed() };
    control.header.cmsg_level = libc::SOL_TLS;
    control.header.cmsg_type = TLS_SET_RECORD_TYPE;
    control.header.cmsg_len = (size_of::<libc::cmsghdr>() + 1) as _;
    control.content_type = content_type;
    let mut slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all fields are numbers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    let sent = retry_on_intr(|| {
        // SAFETY: the message refers to `bytes`, which are only read, and to `control`; both outlive the call.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        usize::try_from(sent).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    });
    Ok(sent?)
}

/// Prepares for [`send_last_record`].
pub(crate) fn make_room(socket: BorrowedFd<'_>) {
    socket::grow_send_buffer(socket, PENDING);
}

/// As [`send_record`], for the last record of a connection. When it is sent, all earlier bytes are in the kernel's TCP.
/// `WouldBlock` means that the socket has no room for it.
///
/// If the socket is full, encrypted bytes remain in the kernel's TLS. They are sent later, but are lost if the socket
/// is closed. So the last record waits until there is room for them, and is sent together with them.
pub(crate) fn send_last_record(socket: BorrowedFd<'_>, content_type: u8, bytes: &[u8]) -> io::Result<usize> {
    if !is_writable(socket)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    send_record(socket, content_type, bytes)
}

/// Returns whether a third of the send buffer is free. If not, the kernel reports when it is.
fn is_writable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(retry_on_intr(|| poll(&mut polled, Some(&now)))? > 0)
}

/// Checks the version of the kernel, and that its module is loaded: the first use by a process of root would load the
/// module. In a separate network namespace, as in containers, this cannot be checked; there the first use decides.
pub(super) fn check_kernel() -> io::Result<()> {
    let (major, minor) = OLDEST;
    if version() < OLDEST {
        return Err(io::Error::other(format!("the kernel is older than {major}.{minor}")));
    }
    match fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp") {
        Ok(loaded) if !loaded.split_whitespace().any(|name| name == "tls") => Err(io::Error::other(WITHOUT_MODULE)),
        _ => Ok(()),
    }
}

/// Returns whether [`encrypt`] can replace keys.
pub(crate) fn replaces_keys() -> bool {
    version() >= REPLACES_KEYS
}

/// Returns the version of the kernel, or the lowest one if it is not known.
fn version() -> (u32, u32) {
    parse(&rustix::system::uname().release().to_string_lossy()).unwrap_or_default()
}

/// Returns the first two numbers of a release, such as `6.12.48+deb12-amd64`.
fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crypto_info_has_the_layout_of_the_kernel() {
        let nonce = Zeroizing::new(std::array::from_fn(|n| n as u8));
        for (cipher, number, len) in
            [(Cipher::Aes128Gcm, 51u16, 40), (Cipher::Aes256Gcm, 52, 56), (Cipher::Chacha20Poly1305, 54, 56)]
        {
            let key = Zeroizing::new(vec![0xaa; cipher.key_len()]);
            let info = crypto_info(&Keys { cipher, key, nonce: nonce.clone(), sequence: 0x0102 });
            assert_eq!(info.len(), len, "{cipher:?}");
            assert_eq!((&info[..2], &info[2..4]), (&[4, 3][..], &number.to_le_bytes()[..]));
            assert_eq!(info[len - 8..], [0, 0, 0, 0, 0, 0, 1, 2]);
            if cipher == Cipher::Chacha20Poly1305 {
                assert_eq!(info[4..16], *nonce);
            } else {
                assert_eq!((&info[4..12], &info[len - 12..len - 8]), (&nonce[4..], &nonce[..4]));
            }
            assert_eq!(info.iter().filter(|&&byte| byte == 0xaa).count(), cipher.key_len());
        }
    }

    #[test]
    fn releases_begin_with_a_version() {
        for (release, expected) in [
            ("6.12.48+deb12-amd64", Some((6, 12))),
            ("6.1.0-37-amd64", Some((6, 1))),
            ("7.0", Some((7, 0))),
            ("5.15-rc1", Some((5, 15))),
            ("6", None),
            ("", None),
            ("next", None),
        ] {
            assert_eq!(parse(release), expected, "{release}");
        }
    }
}
