//! The other end of a connection, which says whatever a test wants.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use millstream::net::UnixStream;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

pub(super) const FIXED: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// A blocking socket.
#[derive(Debug)]
pub(super) struct Peer(pub(super) StdStream);

pub(super) fn message(kind: &[u8; 4], frames: u32, bytes: u64) -> [u8; 16] {
    let mut message = [0; 16];
    message[..4].copy_from_slice(kind);
    message[4..8].copy_from_slice(&frames.to_le_bytes());
    message[8..].copy_from_slice(&bytes.to_le_bytes());
    message
}

/// Returns a memfd with `bytes` and `seals`.
pub(super) fn memfd(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create(c"peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let mut at = 0;
    while at < bytes.len() {
        at += rustix::io::pwrite(&file, &bytes[at..], at as u64).unwrap();
    }
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

impl Peer {
    pub(super) fn pair() -> (Self, UnixStream) {
        let (peer, stream) = StdStream::pair().unwrap();
        peer.set_read_timeout(Some(testkit::HANGS)).unwrap();
        (Self(peer), UnixStream::from_std(stream).unwrap())
    }

    pub(super) fn say(&self, kind: &[u8; 4], frames: u32, bytes: u64) {
        self.send(&message(kind, frames, bytes), &[]);
    }

    /// Sends bytes with descriptors. The receiver may have gone.
    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
        let _ = rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    }

    /// Sends a frame that is in order.
    pub(super) fn frame(&self, bytes: &[u8]) {
        let file = memfd(bytes, FIXED);
        self.send(&message(b"FRAM", 1, bytes.len() as u64), &[file.as_fd()]);
    }

    /// Returns the next message.
    pub(super) fn hear(&self) -> ([u8; 4], u32, u64) {
        let mut message = [0; 16];
        (&self.0).read_exact(&mut message).unwrap();
        let [k0, k1, k2, k3, f0, f1, f2, f3, rest @ ..] = message;
        ([k0, k1, k2, k3], u32::from_le_bytes([f0, f1, f2, f3]), u64::from_le_bytes(rest))
    }

    /// Returns whether the other end has closed the connection. Waits for the end, and ignores earlier messages.
    pub(super) fn is_left(&self) -> bool {
        loop {
            match (&self.0).read(&mut [0; 16]) {
                Ok(0) => return true,
                Ok(_) => {}
                // Closed before it had read everything.
                Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}
