//! Addresses of peers, and the values in the extensions of their requests.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
#[cfg(unix)]
use std::os::unix::net as unix;

use http::Extensions;

use super::handle::Handle;

/// The address of a peer, as returned by a [listener](crate::net::Accept). You can implement it.
pub trait PeerAddr: fmt::Debug + Send + 'static {
    /// Returns the IP address; `None` if there is none. A server uses it to limit the connections of one peer.
    fn ip(&self) -> Option<IpAddr> {
        None
    }

    /// Adds values that identify the peer to the extensions of each of its requests. Called before the first request of
    /// a connection, and again for a request after the connection has rested, so that a connection that rests keeps no
    /// extensions. The values should be the same then.
    fn identify(&self, handle: &Handle, extensions: &mut Extensions) {
        let _ = (handle, extensions);
    }
}

impl PeerAddr for SocketAddr {
    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip())
    }

    /// Adds axum's `ConnectInfo` (feature `axum-08`) and tonic's `TcpConnectInfo` (feature `tonic-014`).
    #[allow(unused, reason = "used only with the features axum and tonic")]
    fn identify(&self, handle: &Handle, extensions: &mut Extensions) {
        #[cfg(feature = "axum-08")]
        extensions.insert(axum::extract::ConnectInfo(*self));
        #[cfg(feature = "tonic-014")]
        extensions.insert(tonic::transport::server::TcpConnectInfo {
            local_addr: handle.local_addr(),
            remote_addr: Some(*self),
        });
    }
}

#[cfg(unix)]
impl PeerAddr for unix::SocketAddr {
    /// Adds axum's `ConnectInfo` (feature `axum-08`), and an `Option<Credentials>` for tonic's services (feature
    /// `tonic-014`).
    #[allow(unused, reason = "used only with the features axum and tonic")]
    fn identify(&self, handle: &Handle, extensions: &mut Extensions) {
        #[cfg(feature = "axum-08")]
        extensions.insert(axum::extract::ConnectInfo(self.clone()));
        #[cfg(feature = "tonic-014")]
        extensions.insert(handle.credentials());
    }
}

#[cfg(unix)]
impl PeerAddr for tokio::net::unix::SocketAddr {}

/// A peer without an address, such as the other end of a pipe.
impl PeerAddr for () {}
