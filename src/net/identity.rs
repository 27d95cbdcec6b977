//! Identity of a peer: its address, and the values in the extensions of its requests.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net as unix;

use http::Extensions;

pub trait Origin {
    /// Returns the IP address of the peer, if the family has one.
    fn ip(&self) -> Option<IpAddr>;

    /// The values that axum and tonic services read from the extensions of requests.
    type Identity: Identity;

    /// Returns the identity of the peer of `socket` at this address.
    fn identity(&self, socket: &impl AsFd) -> Self::Identity;
}

pub trait Identity: Send + Sync + 'static {
    fn insert(&self, extensions: &mut Extensions);
}

/// The peer of a TCP connection.
#[derive(Debug)]
pub struct TcpIdentity {
    #[cfg(any(feature = "axum", feature = "tonic"))]
    remote: SocketAddr,
    #[cfg(feature = "tonic")]
    local: Option<SocketAddr>,
}

/// The peer of a Unix socket.
#[derive(Debug)]
pub struct UnixIdentity {
    #[cfg(feature = "axum")]
    remote: unix::SocketAddr,
    #[cfg(feature = "tonic")]
    credentials: Option<crate::net::Credentials>,
}

#[allow(unused, reason = "used only with the features axum and tonic")]
impl Identity for TcpIdentity {
    fn insert(&self, extensions: &mut Extensions) {
        #[cfg(feature = "axum")]
        extensions.insert(axum::extract::ConnectInfo(self.remote));
        #[cfg(feature = "tonic")]
        extensions.insert(tonic::transport::server::TcpConnectInfo {
            local_addr: self.local,
            remote_addr: Some(self.remote),
        });
    }
}

#[allow(unused, reason = "used only with the features axum and tonic")]
impl Identity for UnixIdentity {
    fn insert(&self, extensions: &mut Extensions) {
        #[cfg(feature = "axum")]
        extensions.insert(axum::extract::ConnectInfo(self.remote.clone()));
        #[cfg(feature = "tonic")]
        extensions.insert(self.credentials);
    }
}

impl Origin for SocketAddr {
    type Identity = TcpIdentity;

    fn ip(&self) -> Option<IpAddr> {
        Some(self.ip())
    }

    #[allow(unused, reason = "used only with the features axum and tonic")]
    fn identity(&self, socket: &impl AsFd) -> TcpIdentity {
        TcpIdentity {
            #[cfg(any(feature = "axum", feature = "tonic"))]
            remote: *self,
            #[cfg(feature = "tonic")]
            local: crate::sys::socket::local_addr(socket).ok(),
        }
    }
}

impl Origin for unix::SocketAddr {
    type Identity = UnixIdentity;

    fn ip(&self) -> Option<IpAddr> {
        None
    }

    #[allow(unused, reason = "used only with the features axum and tonic")]
    fn identity(&self, socket: &impl AsFd) -> UnixIdentity {
        UnixIdentity {
            #[cfg(feature = "axum")]
            remote: self.clone(),
            #[cfg(feature = "tonic")]
            credentials: crate::net::Credentials::of(socket).ok(),
        }
    }
}
