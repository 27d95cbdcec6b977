//! Our streams compared with tokio's: the same scripts, the same bytes at the peer, the same results. Intended
//! differences are listed in [`scripts::DIFFERENCES`], and documented at `net::TcpStream`.

mod exits;
mod peer;
mod runtimes;
mod script;
mod scripts;

use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};

use millstream::net;
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite};

/// A type of stream that scripts run on.
trait Subject: AsyncRead + AsyncWrite + AsFd + Debug + Unpin + Send + 'static {
    const TCP: bool;

    /// Wraps a connected non-blocking socket.
    fn adopt(socket: OwnedFd) -> Self;

    /// Returns the number of bytes accepted and not yet passed to the kernel.
    fn waits(&self) -> usize {
        0
    }

    /// Creates a stream and its peer's socket.
    fn pair() -> (Self, Socket)
    where
        Self: Sized,
    {
        let (ours, theirs) = sockets(Self::TCP);
        (Self::adopt(ours), theirs)
    }
}

/// Creates both ends of a connection, the first of them non-blocking.
fn sockets(tcp: bool) -> (OwnedFd, Socket) {
    let (ours, theirs): (OwnedFd, OwnedFd) = if tcp {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0.into(), theirs.into())
    } else {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (ours.into(), theirs.into())
    };
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    (ours, theirs.into())
}

impl Subject for tokio::net::TcpStream {
    const TCP: bool = true;

    fn adopt(socket: OwnedFd) -> Self {
        Self::from_std(socket.into()).unwrap()
    }
}

impl Subject for tokio::net::UnixStream {
    const TCP: bool = false;

    fn adopt(socket: OwnedFd) -> Self {
        Self::from_std(socket.into()).unwrap()
    }
}

impl Subject for net::TcpStream {
    const TCP: bool = true;

    fn adopt(socket: OwnedFd) -> Self {
        Self::from_std(socket.into()).unwrap()
    }

    fn waits(&self) -> usize {
        self.queued()
    }
}

impl Subject for net::UnixStream {
    const TCP: bool = false;

    fn adopt(socket: OwnedFd) -> Self {
        Self::from_std(socket.into()).unwrap()
    }

    fn waits(&self) -> usize {
        self.queued()
    }
}
