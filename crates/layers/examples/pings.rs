//! Holds silent event streams, and prints the CPU time of a server that keeps them alive by comments:
//!
//! ```text
//! cargo run --release -p millstream-layers --example pings
//! cargo run --release -p millstream-layers --example pings -- --streams 1000 --period 3 --cut 5 --seconds 30
//! ```
//!
//! | row | |
//! |---|---|
//! | silent | streams without comments on `millstream::server::serve` |
//! | kept alive | the same in a `KeepAliveLayer` |
//! | axum | `axum::serve` on tokio's listener, streams of `axum::response::Sse` with its `KeepAlive` |
//!
//! With `--cut` a relay between clients and server ends each connection that is silent for so long, as load balancers do.
//! Each server is a process of its own with one thread. Descriptors: one for each stream in each process; `ulimit -n`
//! limits them.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use clap::Parser;
use futures_util::stream;
use measuring::cpus;
use millstream_layers::KeepAliveLayer;
use testkit::cutter::cutter;
use tokio::runtime::Builder;

#[path = "../../../examples/common/cli.rs"]
mod cli;

/// Holds silent event streams, and prints what it costs to keep them alive.
#[derive(Clone, Parser)]
struct Options {
    /// Streams at a time.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Seconds after which a silent stream gets a comment.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    period: u64,
    /// Seconds for which the streams are held.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seconds of silence after which a relay cuts a connection; by default there is none.
    #[arg(long)]
    cut: Option<u64>,
    /// Serves the streams of a row, for another process of this program.
    #[arg(long, hide = true)]
    serve: Option<String>,
}

const ROWS: [&str; 3] = ["silent", "kept alive", "axum"];

fn main() -> ExitCode {
    let options = Options::parse();
    cli::exit(match &options.serve {
        Some(row) => serve(row, options.period),
        None => measure(&options),
    })
}

/// Serves silent streams until the process is killed.
fn serve(row: &str, period: u64) -> Result<(), String> {
    let (row, period) = (row.to_owned(), Duration::from_secs(period));
    let served = async move {
        let never = || stream::pending::<Result<Event, Infallible>>();
        let plain = Router::new().route("/", get(async move || Sse::new(never())));
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        if row == "axum" {
            let app = get(async move || Sse::new(never()).keep_alive(KeepAlive::new().interval(period)));
            let listener = tokio::net::TcpListener::bind(local).await?;
            println!("{}", listener.local_addr()?);
            return axum::serve(listener, Router::new().route("/", app)).await;
        }
        let app = if row == "silent" { plain } else { plain.layer(KeepAliveLayer::new(period)) };
        let listener = millstream::net::TcpListener::bind(local).await?;
        println!("{}", listener.local_addr()?);
        millstream::server::serve(listener, app).await
    };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(served).map_err(|e| e.to_string())
}

fn measure(options: &Options) -> Result<(), String> {
    let Options { streams, period, seconds, cut, .. } = *options;
    println!("{streams} silent streams for {seconds} s, a comment after {period} s");
    println!("{:12}{:>16}{:>16}{:>14}{:>10}", "server", "CPU of a core", "for a stream", "with comments", "cut");
    // The relay has a thread of its own.
    let relays = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(|e| e.to_string())?;
    for row in ROWS {
        let server =
            Server::start(row, period).map_err(|e| format!("the server of the row {row} did not start: {e}"))?;
        let (addr, cuts) = match cut {
            Some(cut) => relays.block_on(cutter(server.addr, Duration::from_secs(cut))),
            None => (server.addr, Arc::new(AtomicUsize::new(0))),
        };
        let held = hold(addr, &server, streams, Duration::from_secs(seconds)).map_err(|e| format!("row {row}: {e}"))?;
        let core = 100.0 * held.cpu.as_secs_f64() / seconds as f64;
        let each = held.cpu.as_secs_f64() * 1e6 / f64::from(streams);
        let cuts = cut.map_or("-".to_owned(), |_| cuts.load(Ordering::SeqCst).to_string());
        println!("{row:12}{core:>14.2} %{each:>13.1} µs{:>14}{cuts:>10}", held.commented);
    }
    Ok(())
}

/// A server in a process of its own, which ends with this value.
struct Server {
    process: Child,
    addr: SocketAddr,
}

impl Server {
    fn start(row: &str, period: u64) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", row, "--period", &period.to_string()]).stdout(Stdio::piped());
        let mut server = Self { process: command.spawn()?, addr: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        BufReader::new(server.process.stdout.take().ok_or(ErrorKind::BrokenPipe)?).read_line(&mut line)?;
        server.addr = line.trim().parse().map_err(|_| io::Error::other(format!("it printed {line:?}")))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Held {
    /// CPU time of the server.
    cpu: Duration,
    /// Streams that got comments.
    commented: usize,
}

/// Opens streams, leaves them alone for a time, and then looks at what has arrived.
fn hold(addr: SocketAddr, server: &Server, streams: u32, time: Duration) -> io::Result<Held> {
    let mut clients = Vec::with_capacity(streams as usize);
    for _ in 0..streams {
        let mut client = TcpStream::connect(addr)?;
        client.write_all(b"GET / HTTP/1.1\r\nhost: pings\r\n\r\n")?;
        // All servers send the head without an event.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        clients.push(client);
    }
    let pid = server.process.id();
    let before = cpus::of_process(pid)?;
    #[expect(clippy::disallowed_methods, reason = "there is no runtime on this thread")]
    std::thread::sleep(time);
    let cpu = cpus::of_process(pid)?.saturating_sub(before);
    let mut commented = 0;
    for mut client in clients {
        client.set_nonblocking(true)?;
        // Cut streams have an end or an error in place of bytes.
        commented += usize::from(matches!(client.read(&mut [0; 16]), Ok(1..)));
    }
    Ok(Held { cpu, commented })
}
