//! Sockets of both sides, set up alike for all contenders.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_congestion, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};

/// Sets `TCP_NODELAY`, and the congestion control `reno`, which every kernel has and every user may select. The machine's
/// default may pace (`bbr`), and then loopback measures the kernel's timers. `MILLSTREAM_BENCH_CONGESTION` selects another.
pub fn set_up(socket: impl AsFd) -> io::Result<()> {
    let congestion = std::env::var("MILLSTREAM_BENCH_CONGESTION");
    set_tcp_nodelay(&socket, true)?;
    Ok(set_tcp_congestion(&socket, congestion.as_deref().unwrap_or("reno"))?)
}

/// Returns a listener on a free port; its connections inherit how it is set up. It queues more than the 128 connections
/// of std, beyond which a client waits for a second.
pub fn listener() -> io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_up(&socket)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    listen(&socket, 4096)?;
    Ok(socket.into())
}

/// An address of its own for a server that cannot choose one itself. Until all copies of this are dropped, the kernel
/// gives the port to no other socket, but a server that sets `SO_REUSEADDR` can listen there.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub addr: SocketAddr,
    _socket: Arc<OwnedFd>,
}

impl Reserved {
    pub fn new() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self { addr: getsockname(&socket)?.try_into()?, _socket: Arc::new(socket) })
    }
}

pub fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr)?;
    set_up(&stream)?;
    Ok(stream)
}
