//! Our streams beside tokio's: the same scripts, the same view of the peer, the same results. Where they differ on purpose
//! is held as data, in [`scripts::DIFFERENCES`], and told in the documentation of `net::TcpStream`.

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

/// A stream that scripts are run on.
trait Subject: AsyncRead + AsyncWrite + AsFd + Debug + Unpin + Send + 'static {
    const TCP: bool;

    /// Around a socket that is connected and does not block.
    fn adopt(socket: OwnedFd) -> Self;

    /// Bytes that it has taken and not handed to the kernel.
    fn waits(&self) -> usize {
        0
    }

    /// A stream and the other end of it.
    fn pair() -> (Self, Socket)
    where
        Self: Sized,
    {
        let (ours, theirs) = sockets(Self::TCP);
        (Self::adopt(ours), theirs)
    }
}

/// Two ends of a connection, the first of which does not block.
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
