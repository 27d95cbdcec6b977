//! Idle connections: memory of the process for each, without the kernel's.
//!
//! The server is a child process, so that nothing else grows meanwhile: this program with `--idle-child`.

use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use millstream::net;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::common::contest::{Case, Measured};
use crate::common::options::options;
use crate::common::suite::Suite;
use crate::common::{connect, listener, more_files, runtime};

/// Selects the child; neither cargo nor criterion uses this option.
const CHILD: &str = "--idle-child";

const WAYS: [&str; 2] = ["millstream", "tokio"];

/// Task of a child process.
pub(crate) struct Child {
    way: String,
    connections: usize,
}

/// Returns the task if this process is a child.
pub(crate) fn child() -> Option<Child> {
    let mut args = std::env::args().skip(1);
    (args.next()? == CHILD)
        .then(|| Child { way: args.next().unwrap(), connections: args.next().unwrap().parse().unwrap() })
}

/// Waits for bytes with a small buffer, like a parser of small messages.
async fn wait(mut stream: impl AsyncRead + Unpin) {
    let mut buffer = [0; 16];
    while stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {}
}

impl Child {
    /// Accepts the connections, starts a waiting task for each, and prints the growth of the process in bytes.
    pub(crate) fn run(self) {
        more_files();
        let listener = listener();
        listener.set_nonblocking(true).unwrap();
        println!("{}", listener.local_addr().unwrap());
        let grown = runtime().block_on(async {
            match &*self.way {
                "tokio" => self.tokio(listener).await,
                _ => self.ours(listener).await,
            }
        });
        println!("{}", grown.unwrap());
        // Until the parent has ended.
        let _ = io::stdin().lines().next();
    }

    async fn tokio(&self, listener: TcpListener) -> io::Result<u64> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        // The first connection pays for everything that exists once.
        tokio::spawn(wait(listener.accept().await?.0));
        let before = settled().await;
        for _ in 1..self.connections {
            tokio::spawn(wait(listener.accept().await?.0));
        }
        Ok(settled().await.saturating_sub(before))
    }

    async fn ours(&self, listener: TcpListener) -> io::Result<u64> {
        let listener = net::TcpListener::from_std(listener)?;
        tokio::spawn(wait(listener.accept().await?.0));
        let before = settled().await;
        for _ in 1..self.connections {
            tokio::spawn(wait(listener.accept().await?.0));
        }
        Ok(settled().await.saturating_sub(before))
    }
}

/// Returns the resident bytes once all tasks wait.
async fn settled() -> u64 {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Returns the bytes for each connection.
fn measure(way: &str, connections: usize) -> f64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([CHILD, way, &connections.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let addr = lines.next().expect("the child prints its address").parse().unwrap();
    let connected = connect(addr, connections);
    let grown: u64 = lines.next().expect("the child prints its size").parse().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    drop(connected);
    grown as f64 / (connections - 1) as f64
}

pub(crate) fn run(suite: &mut Suite) {
    let wanted = options().pick(100, 1000, 10_000);
    // This process has some descriptors open itself.
    let connections = wanted.min(more_files().saturating_sub(100) as usize);
    let title = format!("idle, {connections} connections");
    if !suite.begins(&title) {
        return;
    }
    let mut measured = WAYS.map(|way| Measured { name: way.to_owned(), ..Measured::default() });
    for _ in 0..options().pick(1, 1, 3) {
        measured.iter_mut().for_each(|measured| measured.cpu.push(measure(&measured.name, connections)));
    }
    suite.record(&Case::new(&title, "bytes each", 1), measured.into());
}
