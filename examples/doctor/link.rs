//! The connections that `--measure` sends by: loopback, a pair of virtual interfaces, or another machine.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::net::{RecvFlags, recv};

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
            Self::Loopback => TcpStream::connect(discard_one()?)?,
            Self::Veth(veth) => TcpStream::connect((FAR, veth.port))?,
            Self::Peer(addr) => TcpStream::connect(addr)?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Starts a thread that discards the bytes of one connection, and returns its address.
fn discard_one() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    thread::spawn(move || listener.accept().map(|(stream, _)| discard(stream)));
    Ok(addr)
}

/// Receives to the end, without copies where the kernel can drop bytes of TCP (`MSG_TRUNC`, tcp(7)).
pub(crate) fn discard(mut stream: TcpStream) {
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

/// Two connected interfaces. The far one is in the network namespace of a process that discards all bytes. The kernel
/// removes both when that process ends, which it does with this one, even if this one is killed.
#[derive(Debug)]
pub(crate) struct Veth {
    name: String,
    peer: Child,
    port: u16,
}

impl Veth {
    /// Needs root, and the programs of iproute2 and util-linux.
    pub(crate) fn new() -> Result<Self, String> {
        let name = format!("mill{}", std::process::id());
        let far = format!("{name}f");
        let peer = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net"])
            .arg(std::env::current_exe().map_err(|e| e.to_string())?)
            .args(["--discard", "0.0.0.0:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("a network namespace needs `setpriv` and `unshare` of util-linux: {e}"))?;
        // Ends the process if anything below fails.
        let mut veth = Self { name, peer, port: 0 };
        veth.port = veth.listening()?;
        let (name, pid) = (&veth.name, &veth.peer.id().to_string());
        run("ip", &["link", "add", name, "type", "veth", "peer", "name", &far, "netns", pid])?;
        run("ip", &["address", "add", &format!("{NEAR}/30"), "dev", name])?;
        run("ip", &["link", "set", name, "up"])?;
        let within = ["--net", "--target", pid, "ip"];
        let ip = |arguments: &[&str]| run("nsenter", &[&within, arguments].concat());
        ip(&["address", "add", &format!("{FAR}/30"), "dev", &far])?;
        ip(&["link", "set", &far, "up"])?;
        Ok(veth)
    }

    /// Waits until the process listens, and returns its port.
    fn listening(&mut self) -> Result<u16, String> {
        let mut line = String::new();
        let stdout = self.peer.stdout.take().ok_or("no standard output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        let port = line.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
        port.ok_or_else(|| "no process could be started in a network namespace of its own, which needs root".to_owned())
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        let _ = self.peer.kill();
        let _ = self.peer.wait();
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let command = || format!("`{program} {}`", arguments.join(" "));
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("a pair of virtual interfaces needs {}: {e}", command()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{} failed, which needs root: {}", command(), String::from_utf8_lossy(&output.stderr).trim()))
}
