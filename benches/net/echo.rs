//! Small messages back and forth.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io;
use std::net::TcpListener;
use std::time::Instant;

use criterion::Criterion;
use millstream::metrics::Snapshot;
use millstream::net::{self, Receive};
use millstream::runtime::{DriverBuilder, Io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::common::closed_loop::{ClosedLoop, LEN};
use crate::common::contest::{Contender, Contest, Spent};
use crate::common::server::Server;
use crate::common::{connect, cpu_of_others};

/// Far more than a message has: a read that is not filled need not be followed by one that is told to wait.
const ROOM: usize = 16 << 10;

/// Messages of a round by turns, on all connections together.
const MESSAGES: u64 = 60_000;

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

async fn ours(listener: TcpListener, io: Io, receive: Receive) -> io::Result<()> {
    DriverBuilder::new().io(io).install()?;
    let listener = net::TcpListener::builder().receive(receive).from_std(listener)?;
    loop {
        tokio::spawn(echo(listener.accept().await?.0));
    }
}

/// What our streams called while messages went back and forth.
#[derive(Default)]
struct Calls {
    messages: Cell<u64>,
    writes: Cell<u64>,
    ring_sends: Cell<u64>,
    enters: Cell<u64>,
}

impl Calls {
    fn add(&self, messages: u64, counts: &Snapshot) {
        let add = |to: &Cell<u64>, n| to.set(to.get() + n);
        add(&self.messages, messages);
        add(&self.writes, counts.writes);
        add(&self.ring_sends, counts.ring_sends);
        add(&self.enters, counts.ring_enters);
    }

    /// For each message, the calls that sent, and those that entered a ring. What was sent by ring was no call; as the server
    /// goes on while it is counted, there may be one more of these than of writes.
    fn rates(&self) -> Option<[f64; 2]> {
        let messages = self.messages.get();
        let sends = self.writes.get().saturating_sub(self.ring_sends.get());
        (messages > 0).then(|| [sends, self.enters.get()].map(|calls| calls as f64 / messages as f64))
    }
}

/// A server and the connections to it.
fn contender<'a>(name: &'static str, server: Server, connections: usize, calls: &'a Calls) -> Contender<'a> {
    let mut load = ClosedLoop::new(connect(server.addr, connections)).unwrap();
    let run = move |operations: u64| {
        // Dropped with the contender, after the load.
        let _server = &server;
        let messages = operations * connections as u64;
        let (start, cpu, counts) = (Instant::now(), cpu_of_others(), Snapshot::now());
        assert_eq!(load.run(|sent| sent < messages).unwrap(), messages);
        calls.add(messages, &Snapshot::now().since(&counts));
        Spent { wall: start.elapsed(), cpu: cpu_of_others().saturating_sub(cpu) }
    };
    Contender { name, run: Box::new(run) }
}

fn among(criterion: &mut Criterion, connections: usize) -> Option<String> {
    let way = |io, receive| Server::start(move |listener| ours(listener, io, receive));
    let servers = [
        ("tokio", Server::start(tokio)),
        ("millstream, no ring", way(Io::Epoll, Receive::Ready)),
        ("millstream, ready", way(Io::Auto, Receive::Ready)),
        ("millstream, multishot", way(Io::Auto, Receive::Multishot)),
    ];
    let names = servers.each_ref().map(|(name, _)| *name);
    let calls = names.map(|_| Calls::default());
    let contenders = servers.into_iter().zip(&calls);
    let contenders = contenders.map(|((name, server), calls)| contender(name, server, connections, calls)).collect();
    let title = format!("echo {LEN} B, {connections} connections");
    let operations = MESSAGES / connections as u64;
    let contest = Contest { title: &title, unit: "message", units: connections as u64, operations };
    let mut table = contest.run(criterion, contenders)?;
    for (name, calls) in names.iter().zip(&calls).filter(|(name, _)| name.starts_with("millstream")) {
        if let Some([sends, enters]) = calls.rates() {
            writeln!(table, "  {name:<32} calls/message: {sends:.3} that send, {enters:.3} into a ring").unwrap();
        }
    }
    Some(table)
}

/// The table of each number of connections that the command line has chosen.
pub(crate) fn compare(criterion: &mut Criterion) -> Vec<String> {
    [1, 8, 64, 512].into_iter().filter_map(|connections| among(criterion, connections)).collect()
}
