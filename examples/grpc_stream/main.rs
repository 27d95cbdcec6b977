//! A streaming gRPC service on tonic's server and millstream's listener, and a client for it.
//!
//! `cargo run --release --example grpc_stream -- serve` listens on `127.0.0.1:50051` until Ctrl-C;
//! `… -- watch http://127.0.0.1:50051 --streams 100 --hz 100` reads ticks and prints their rate and latency.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser};
use measuring::statistics::quantile;
use millstream::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::{Endpoint, Server};

#[path = "../common/cli.rs"]
mod cli;
#[cfg(test)]
mod tests;
mod ticks;

use ticks::{Ticks, WatchRequest, now, watch};

/// A gRPC service that streams, and a client that measures it.
#[derive(Parser)]
enum Command {
    /// Serves ticks until Ctrl-C.
    Serve {
        /// Address and port; port 0 chooses a free one.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:50051")]
        listen: SocketAddr,
    },
    /// Reads ticks, and prints their rate and latency.
    Watch(Options),
}

#[derive(Args)]
struct Options {
    /// The server, such as http://127.0.0.1:50051.
    url: String,
    /// Number of streams.
    #[arg(long, value_name = "N", default_value_t = 100)]
    streams: u32,
    /// Connections for these streams.
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: u32,
    /// Ticks per second and stream; 0: without a limit.
    #[arg(long, value_name = "N", default_value_t = 100)]
    hz: u32,
    /// Bytes per tick.
    #[arg(long, value_name = "N", default_value_t = 100)]
    payload: u32,
    /// Duration.
    #[arg(long, value_name = "N", default_value_t = 5)]
    seconds: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(match Command::parse() {
        Command::Serve { listen } => serve(listen).await,
        Command::Watch(options) => options.watch().await,
    })
}

async fn serve(addr: SocketAddr) -> Result<(), String> {
    let listener = TcpListener::bind(addr).await.map_err(|e| format!("{e}; choose another address with --listen"))?;
    let interrupted = cli::interrupted().map_err(|e| e.to_string())?;
    println!("http://{} serves millstream.example.Ticks", listener.local_addr().map_err(|e| e.to_string())?);
    tokio::select! {
        // Stock tonic calls `serve(addr, Ticks)` here.
        ended = Server::builder().serve_with_incoming(Ticks, listener.incoming()) => ended.map_err(|e| e.to_string()),
        () = interrupted => Ok(()),
    }
}

impl Options {
    async fn watch(self) -> Result<(), String> {
        if self.connections == 0 || self.streams < self.connections {
            return Err("give at least one connection, and a stream for each".to_owned());
        }
        let Self { url, hz, payload, .. } = &self;
        let asked = WatchRequest { hz: *hz, payload: *payload, count: 0 };
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|e| format!("{url}: {e}"))?;
        let mut channels = Vec::new();
        for _ in 0..self.connections {
            channels.push(endpoint.connect().await.map_err(|e| format!("{url}: {e}; is a server there?"))?);
        }
        let start = Instant::now();
        let end = start + Duration::from_secs(self.seconds.into());
        let mut streams = JoinSet::new();
        for channel in channels.iter().cycle().take(self.streams as usize) {
            streams.spawn(read(watch(channel.clone(), asked), end));
        }
        let mut late = Vec::new();
        while let Some(read) = streams.join_next().await {
            late.extend(read.map_err(|e| e.to_string())?.map_err(|e| format!("{url}: {e}"))?);
        }
        let rate = late.len() as f64 / start.elapsed().as_secs_f64();
        let late: Vec<f64> = late.into_iter().map(|nanos| nanos as f64 / 1e6).collect();
        if late.is_empty() {
            return Err("no message arrived".to_owned());
        }
        let [p50, p99] = [0.5, 0.99].map(|share| quantile(&late, share));
        println!("{rate:.0} messages/s, late by p50 {p50:.3} ms, p99 {p99:.3} ms");
        Ok(())
    }
}

/// Reads one stream until `end`. Returns the latency of each message in nanoseconds.
async fn read(
    stream: impl Future<Output = Result<tonic::Streaming<ticks::Tick>, tonic::Status>>,
    end: Instant,
) -> Result<Vec<u64>, tonic::Status> {
    let mut stream = stream.await?;
    let mut late = Vec::new();
    while Instant::now() < end
        && let Some(tick) = stream.message().await?
    {
        late.push(now().saturating_sub(tick.due_at));
    }
    Ok(late)
}
