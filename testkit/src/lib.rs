//! Common parts of the tests of several crates: servers, clients, faults, counts of what is left, limits of waiting.

pub mod alone;
pub mod child;
pub mod counted;
pub mod crash;
pub mod cutter;
pub mod events;
pub mod family;
pub mod far;
pub mod fuse;
pub mod http;
#[cfg(feature = "server")]
pub mod leaving;
pub mod levels;
pub mod limits;
pub mod mounts;
#[cfg(feature = "sse")]
pub mod parse;
#[path = "../../examples/common/report.rs"]
pub mod report;
#[cfg(feature = "sse")]
pub mod resuming;
pub mod seccomp;
pub mod served;
#[cfg(feature = "server")]
pub mod serving;
#[cfg(feature = "resumable")]
pub mod shared;
#[cfg(feature = "server")]
pub mod sim;
pub mod skips;
pub mod strace;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(all(feature = "files", feature = "server"))]
pub mod tree;
#[cfg(feature = "fs")]
pub mod ways;

use std::net::SocketAddr;
use std::time::Duration;

use millstream::metrics::Snapshot;
use millstream::net::{TcpListener, TcpStream};
use socket2::{Domain, Socket, Type};

pub use skips::skip;
pub use testdata::{common_prefix, letters, noise};

/// Timeout that only a hang reaches, also on a loaded machine. It is not used for measurements.
pub const HANGS: Duration = Duration::from_secs(60);

/// An address of its own at which nobody listens: until this is dropped, the kernel gives the port to no other socket. A
/// server that sets `SO_REUSEADDR` can listen there, and again after it has ended.
#[derive(Debug)]
pub struct Reserved {
    pub addr: SocketAddr,
    _socket: Socket,
}

impl Reserved {
    #[expect(clippy::new_without_default, reason = "two are never equal")]
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self { addr: socket.local_addr().unwrap().as_socket().unwrap(), _socket: socket }
    }
}

/// Creates a connection of ours that gathers for at most `gather`, and its other end.
pub async fn pair_with(gather: Duration) -> (TcpStream, tokio::net::TcpStream) {
    let listener = TcpListener::builder().gather_limit(gather).bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Creates a connection of ours that gathers as long as writes continue, and its other end.
pub async fn pair() -> (TcpStream, tokio::net::TcpStream) {
    pair_with(Duration::from_secs(60)).await
}

pub fn fds() -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut all: Vec<_> =
        links.filter_map(|link| Some(std::fs::read_link(link.ok()?.path()).ok()?.display().to_string())).collect();
    all.sort();
    all
}

/// Returns whether this is the portable build, which cannot do what is tested, and reports the test as skipped.
pub fn portable(why: &str) -> bool {
    if cfg!(millstream_portable) {
        skips::tell(&format!("portable build: {why}"));
    }
    cfg!(millstream_portable)
}

/// Returns whether a capability under test is not in use. Reports a [`skip`] then, unless it was disabled on purpose,
/// or needs a feature that is off.
pub fn lacks(capability: &str) -> bool {
    let mut entries = millstream::Capabilities::get().entries();
    let (name, support) = entries.find(|(name, _)| *name == capability).expect("a capability of that name");
    if !support.is_yes() {
        let is_wanted = ["MILLSTREAM_DISABLE", "built without the feature"];
        match is_wanted.iter().any(|why| support.to_string().contains(why)) {
            true => skips::tell(&format!("{name}: {support}")),
            false => skip(name, support),
        }
    }
    !support.is_yes()
}

/// Returns what was counted since `before`, once it is as `expected`: a peer may have the bytes before they are counted.
pub async fn counted_since(before: &Snapshot, expected: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let start = std::time::Instant::now();
    loop {
        let counted = Snapshot::now().since(before);
        if expected(&counted) {
            return counted;
        }
        assert!(start.elapsed() < HANGS, "{counted}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
