//! Sockets of both sides, set up alike for all contenders.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::net::sockopt::{set_tcp_congestion, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

/// Every kernel has it and every user may choose it. The machine's own may be one that paces, and then loopback measures
/// the kernel's timers.
const CONGESTION: &str = "reno";

fn set_up(socket: impl AsFd) -> io::Result<()> {
    set_tcp_nodelay(&socket, true)?;
    Ok(set_tcp_congestion(&socket, CONGESTION)?)
}

/// A listener on a free port; its connections inherit how it is set up.
pub(crate) fn listener() -> io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_up(&socket)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    listen(&socket, 4096)?;
    Ok(socket.into())
}

pub(crate) fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addr)?;
    set_up(&stream)?;
    Ok(stream)
}
