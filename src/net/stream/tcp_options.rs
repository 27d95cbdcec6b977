//! Socket options of a TCP connection, as on tokio's stream.

use std::io;
use std::time::Duration;

use super::tcp::TcpStream;
use crate::sys::fd::AsFd;
use crate::sys::socket;

impl TcpStream {
    /// Returns whether small segments are sent at once (`TCP_NODELAY`); on by default.
    pub fn nodelay(&self) -> io::Result<bool> {
        socket::nodelay(self.as_fd())
    }

    /// Sets whether small segments are sent at once. Without, they wait for acknowledgements, after they have gathered.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        socket::set_nodelay(self.as_fd(), on)
    }

    /// Returns the time for which closing the socket waits for unsent bytes (`SO_LINGER`,
    /// [socket(7)](https://man7.org/linux/man-pages/man7/socket.7.html)); `None` by default.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        socket::linger(self.as_fd())
    }

    /// Sets the time for which closing the socket waits for unsent bytes, in whole seconds. **The close blocks its
    /// thread**, which may be one of the runtime: it happens when the stream is dropped, or when a dropped stream has
    /// sent its queue. Without it, the kernel sends them in the background. Zero is
    /// [`set_zero_linger`](Self::set_zero_linger).
    pub fn set_linger(&self, time: Option<Duration>) -> io::Result<()> {
        socket::set_linger(self.as_fd(), time)
    }

    /// Makes a drop reset the connection, and discard the bytes that were not sent by then. Does not block.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }
}
