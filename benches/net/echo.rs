//! Round trips of small messages.

use std::io;
use std::net::TcpListener;
use std::time::Instant;

use measuring::closed_loop::{ClosedLoop, LEN};
use millstream::metrics::Snapshot;
use millstream::net;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::common::contest::{Case, Contender, Run, Spent};
use crate::common::server::Server;
use crate::common::suite::Suite;
use crate::common::{connect, cpu_of_others};

/// Far more than the length of a message, so a short read shows that the socket is empty and no second read is needed.
const ROOM: usize = 16 << 10;

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; ROOM];
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..n]).await?;
    }
}

async fn tokio(listener: TcpListener) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        tokio::spawn(echo(listener.accept().await?.0));
    }
}

async fn ours(listener: TcpListener) -> io::Result<()> {
    let listener = net::TcpListener::from_std(listener)?;
    loop {
        tokio::spawn(echo(listener.accept().await?.0));
    }
}

struct Echo {
    // Dropped before the server.
    load: ClosedLoop,
    _server: Server,
    connections: usize,
    messages: u64,
    writes: u64,
}

impl Echo {
    fn new(server: Server, connections: usize) -> Self {
        let load = ClosedLoop::new(connect(server.addr, connections)).unwrap();
        Self { load, _server: server, connections, messages: 0, writes: 0 }
    }
}

impl Run for Echo {
    fn run(&mut self, operations: u64) -> Spent {
        let messages = operations * self.connections as u64;
        let (start, cpu, counts) = (Instant::now(), cpu_of_others(), Snapshot::now());
        assert_eq!(self.load.run(|sent| sent < messages).unwrap(), messages);
        let counts = Snapshot::now().since(&counts);
        self.messages += messages;
        self.writes += counts.writes;
        Spent { wall: start.elapsed(), cpu: cpu_of_others().saturating_sub(cpu) }
    }

    /// Returns the send calls per message.
    fn note(&mut self) -> String {
        if self.writes == 0 {
            return String::new();
        }
        format!("calls/message: {:.3} that send", self.writes as f64 / self.messages as f64)
    }
}

pub(crate) fn run(suite: &mut Suite) {
    for connections in [1, 8, 64, 512] {
        let title = format!("echo {LEN} B, {connections} connections");
        suite.run(&Case::new(&title, "CPU us/message", connections as u64), || {
            let servers = [("millstream", Server::start(ours)), ("tokio", Server::start(tokio))];
            let contender = |(name, server)| Contender { name, run: Box::new(Echo::new(server, connections)) };
            servers.map(contender).into()
        });
    }
}
