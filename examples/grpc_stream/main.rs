//! A streaming gRPC service on tonic's server and millstream's listener, and a client for it.
//!
//! `cargo run --release --features tonic --example grpc_stream -- serve` listens on `127.0.0.1:50051` until Ctrl-C;
//! `… -- watch http://127.0.0.1:50051 --streams 100 --hz 100` reads ticks and prints their rate and latency.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use millstream::net::TcpListener;
use tokio::task::JoinSet;
use tonic::transport::{Endpoint, Server};

#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;
mod ticks;

use ticks::{Ticks, WatchRequest, now, watch};

const USAGE: &str = "\
usage: cargo run --release --features tonic --example grpc_stream -- serve [ADDR]
       cargo run --release --features tonic --example grpc_stream -- watch URL [OPTIONS]
  ADDR             address to listen on, default 127.0.0.1:50051; port 0 chooses a free one
  URL              a server, http://127.0.0.1:50051 for example
  --streams N      streams, default 100
  --connections N  connections for these streams, default 1
  --hz N           ticks per second and stream, default 100; 0: without a limit
  --payload N      bytes per tick, default 100
  --seconds N      duration, default 5";

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args[..] {
        ["serve"] => serve("127.0.0.1:50051").await,
        ["serve", addr] => serve(addr).await,
        ["watch", url, ref options @ ..] => match Options::parse(options) {
            Ok(options) => options.watch(url).await,
            Err(wrong) => Err(wrong),
        },
        _ => Err(USAGE.to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(addr: &str) -> Result<(), String> {
    let listener = TcpListener::bind(addr).await.map_err(|e| format!("{e}; choose another address"))?;
    println!("http://{} serves millstream.example.Ticks", listener.local_addr().map_err(|e| e.to_string())?);
    tokio::select! {
        // Stock tonic calls `serve(addr, Ticks)` here.
        ended = Server::builder().serve_with_incoming(Ticks, listener.incoming()) => ended.map_err(|e| e.to_string()),
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(|e| e.to_string()),
    }
}

struct Options {
    streams: u32,
    connections: u32,
    asked: WatchRequest,
    seconds: u32,
}

impl Options {
    fn parse(options: &[&str]) -> Result<Self, String> {
        let asked = WatchRequest { hz: 100, payload: 100, count: 0 };
        let mut parsed = Self { streams: 100, connections: 1, asked, seconds: 5 };
        for option in options.chunks(2) {
            let &[name, value] = option else { return Err(format!("{} needs a value\n{USAGE}", option[0])) };
            let value = value.parse().map_err(|_| format!("{name} {value}: give a number\n{USAGE}"))?;
            match name {
                "--streams" => parsed.streams = value,
                "--connections" => parsed.connections = value,
                "--hz" => parsed.asked.hz = value,
                "--payload" => parsed.asked.payload = value,
                "--seconds" => parsed.seconds = value,
                _ => return Err(USAGE.to_owned()),
            }
        }
        if parsed.connections == 0 || parsed.streams < parsed.connections {
            return Err("give at least one connection, and a stream for each".to_owned());
        }
        Ok(parsed)
    }

    async fn watch(self, url: &str) -> Result<(), String> {
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|e| format!("{url}: {e}"))?;
        let mut channels = Vec::new();
        for _ in 0..self.connections {
            channels.push(endpoint.connect().await.map_err(|e| format!("{url}: {e}; is a server there?"))?);
        }
        let start = Instant::now();
        let end = start + Duration::from_secs(self.seconds.into());
        let mut streams = JoinSet::new();
        for channel in channels.iter().cycle().take(self.streams as usize) {
            streams.spawn(read(watch(channel.clone(), self.asked), end));
        }
        let mut late = Vec::new();
        while let Some(read) = streams.join_next().await {
            late.extend(read.map_err(|e| e.to_string())?.map_err(|e| format!("{url}: {e}"))?);
        }
        let rate = late.len() as f64 / start.elapsed().as_secs_f64();
        late.sort_unstable();
        let percentile =
            |part: f64| late.get((late.len() as f64 * part) as usize).map_or(f64::NAN, |&ns| ns as f64 / 1e6);
        println!("{rate:.0} messages/s, late by p50 {:.3} ms, p99 {:.3} ms", percentile(0.5), percentile(0.99));
        if late.is_empty() { Err("no message arrived".to_owned()) } else { Ok(()) }
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
