//! The connections that `--measure` sends by: loopback, a pair of virtual interfaces, or another machine.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;

use rustix::net::{RecvFlags, recv};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where the bytes go.
#[derive(Debug)]
pub(crate) enum Link {
    Loopback,
    Veth(Veth),
    /// A peer that discards all bytes: `doctor --discard` on another machine.
    Peer(SocketAddr),
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("loopback"),
            Self::Veth(veth) => write!(f, "a pair of virtual interfaces ({})", veth.name),
            Self::Peer(addr) => write!(f, "the way to {addr}"),
        }
    }
}

impl Link {
    /// Connects to a peer that discards what it receives.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = match self {
            Self::Loopback => TcpStream::connect(discarding(|| TcpListener::bind("127.0.0.1:0"))?)?,
            Self::Veth(veth) => {
                let name_space = File::open(format!("/run/netns/{}", veth.name))?;
                TcpStream::connect(discarding(move || {
                    // This thread ends with its listener, so it need not return.
                    move_into_link_name_space(name_space.as_fd(), Some(LinkNameSpaceType::Network))?;
                    TcpListener::bind((FAR, 0))
                })?)?
            }
            Self::Peer(addr) => TcpStream::connect(addr)?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Starts a thread that listens, and discards the bytes of one connection. Returns its address.
fn discarding(listen: impl FnOnce() -> io::Result<TcpListener> + Send + 'static) -> io::Result<SocketAddr> {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let listener = listen();
        let addr = listener.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()));
        let _ = sender.send(addr.and_then(TcpListener::local_addr));
        if let Ok((stream, _)) = listener.and_then(|listener| listener.accept()) {
            discard(stream);
        }
    });
    receiver.recv().map_err(io::Error::other)?
}

/// Receives to the end, without copies where the kernel can drop bytes of TCP (`MSG_TRUNC`, tcp(7)).
fn discard(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 20];
    while matches!(recv(&stream, &mut buffer[..], RecvFlags::TRUNC), Ok((_, 1..))) {}
    // After an error, which ends the loop above early.
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

/// Discards the bytes of all connections, for as long as the program runs.
pub(crate) fn discard_all(addr: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(addr)?;
    println!("discards what arrives at tcp://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept()?;
        thread::spawn(|| discard(stream));
    }
}

/// The near and the far address, of the block for measurements (RFC 2544), which no network routes.
const NEAR: &str = "198.18.249.1";
const FAR: &str = "198.18.249.2";

/// Two connected interfaces, one of them in a network namespace of its own. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Veth {
    name: String,
}

impl Veth {
    /// Needs root, and `ip` of iproute2.
    pub(crate) fn new() -> Result<Self, String> {
        let name = format!("mill{}", std::process::id());
        let far = format!("{name}f");
        ip(&["netns", "add", &name])?;
        let veth = Self { name };
        let name = &veth.name;
        ip(&["link", "add", name, "type", "veth", "peer", "name", &far, "netns", name])?;
        ip(&["address", "add", &format!("{NEAR}/30"), "dev", name])?;
        ip(&["link", "set", name, "up"])?;
        ip(&["-netns", name, "address", "add", &format!("{FAR}/30"), "dev", &far])?;
        ip(&["-netns", name, "link", "set", &far, "up"])?;
        Ok(veth)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // The interfaces go with the namespace.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("a pair of virtual interfaces needs `ip` of iproute2: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {}` failed, which needs root: {}", arguments.join(" "), error.trim()))
}
