//! Descriptors sent over Unix sockets: `SCM_RIGHTS` of
//! [unix(7)](https://man7.org/linux/man-pages/man7/unix.7.html). No call waits, and none returns `EINTR`.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use socket2::SockRef;

/// Maximum number of descriptors that one call receives. The kernel closes further ones, and the call fails.
const RIGHTS_MAX: usize = 16;

/// Sends `bytes`, with a descriptor if there is one. Returns the number of bytes accepted; the descriptor goes with the
/// first.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fd) = &fd {
        let fits = control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
        debug_assert!(fits, "internal: no room for a descriptor");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(retry_on_intr(|| rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))?)
}

/// Receives bytes, and appends the descriptors that came with them. `Ok(0)` is the end. A call ends behind the bytes
/// that carry descriptors, so a short one does not mean that the socket is empty.
///
/// Fails with `InvalidData` if more than [`RIGHTS_MAX`] descriptors came at once, or this process has no room for them.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors were cut off"));
    }
    Ok(received.bytes)
}

/// Ends both directions, for all descriptors of the socket.
pub(crate) fn shut_down(socket: BorrowedFd<'_>) {
    // Fails only if the peer has ended the connection.
    let _ = SockRef::from(&socket).shutdown(Shutdown::Both);
}
