//! A server in a child process: this program, run again as a [`child`](crate::child).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

/// In the child: prints the server's address, and waits until the parent ends it.
pub async fn until_ended(addr: SocketAddr) {
    println!("\nlistening {addr}");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
}

/// In the parent: the child, which is killed on drop.
pub struct Server {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub addr: SocketAddr,
}

impl Server {
    /// Starts a [`child::command`](crate::child::command) that runs [`until_ended`].
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = lines.find_map(|line| Some(line.unwrap().strip_prefix("listening ")?.parse().unwrap()));
        Self { child, addr: addr.expect("the server's address"), lines }
    }

    /// Returns its memory in KiB, by the names of proc_pid_status(5).
    pub fn memory(&self) -> HashMap<String, u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let rows = status.lines().filter_map(|line| line.split_once(':'));
        rows.filter(|(name, _)| ["VmHWM", "VmRSS", "RssAnon", "RssFile"].contains(name))
            .map(|(name, value)| (name.to_owned(), value.trim().trim_end_matches(" kB").parse().unwrap()))
            .collect()
    }

    /// Counts its open descriptors whose links in /proc begin with `kind`.
    pub fn open(&self, kind: &str) -> usize {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        // A descriptor closed meanwhile has no link any more.
        let named = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        named.filter(|name| name.to_string_lossy().starts_with(kind)).count()
    }

    /// Ends the child, asserts its success, and returns the lines it printed.
    pub fn end(&mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let lines = self.lines.by_ref().map(|line| line.unwrap()).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also after a failed assertion. Fails only if the child has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
