//! Streams tokens by `axum::serve` on tokio's listener and on this crate's, and prints when they arrive.
//!
//! tokio's listener leaves Nagle's algorithm on: a small write waits until the client has acknowledged the write before,
//! and a client may delay that by 40 ms. This crate's listener sets `TCP_NODELAY`, as
//! `axum::serve(listener.tap_io(|io| io.set_nodelay(true).unwrap()), app)` does for tokio's.
//!
//! `cargo run --release --features axum-08 --example token_stall` takes some seconds. `--help` has the options.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use clap::Parser;
use futures_util::{Stream, StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::interval;

#[path = "common/cli.rs"]
mod cli;

/// Prints when tokens arrive from tokio's listener and from this crate's.
#[derive(Clone, Copy, Parser)]
struct Options {
    /// Clients at a time.
    #[arg(long, default_value_t = 16)]
    streams: usize,
    /// Requests of each client, one after another on its connection.
    #[arg(long, default_value_t = 20)]
    requests: usize,
    /// Tokens of each response.
    #[arg(long, default_value_t = 20)]
    tokens: usize,
    /// Milliseconds from one token to the next.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pause: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await.map_err(|e| e.to_string()))
}

async fn run(options: Options) -> io::Result<()> {
    let app = Router::new().route("/tokens", get(async move || tokens(options)));
    let local: SocketAddr = ([127, 0, 0, 1], 0).into();
    let stock = tokio::net::TcpListener::bind(local).await?;
    let ours = millstream::net::TcpListener::bind(local).await?;
    let servers = [("tokio", stock.local_addr()?), ("millstream", ours.local_addr()?)];
    tokio::spawn(axum::serve(stock, app.clone()).into_future());
    tokio::spawn(axum::serve(ours, app).into_future());

    let Options { streams, requests, tokens, pause } = options;
    println!("{tokens} tokens, one each {pause} ms, to {streams} clients, {requests} requests each");
    println!("{:12}{:>22}{:>22}{:>22}", "listener", "first token, p50/p99", "late token, p50/p99", "response, p50");
    for (name, addr) in servers {
        let clients: Vec<_> = (0..streams).map(|_| tokio::spawn(visit(addr, options))).collect();
        let mut times = Times::default();
        for client in clients {
            times.add(client.await.map_err(io::Error::other)??);
        }
        println!("{name:12}{:>22}{:>22}{:>22}", pair(&mut times.first), pair(&mut times.late), half(&mut times.whole));
    }
    Ok(())
}

fn tokens(options: Options) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = stream::unfold(interval(Duration::from_millis(options.pause)), async |mut ticks| {
        ticks.tick().await;
        Some((Ok(Event::default().data("token")), ticks))
    });
    Sse::new(ticks.take(options.tokens))
}

#[derive(Default)]
struct Times {
    /// From a request to its first token.
    first: Vec<Duration>,
    /// By how much a token comes later than a pause after the token before.
    late: Vec<Duration>,
    /// From a request to the end of its response.
    whole: Vec<Duration>,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.first.extend(other.first);
        self.late.extend(other.late);
        self.whole.extend(other.whole);
    }
}

/// Sends the requests of one client.
async fn visit(addr: SocketAddr, options: Options) -> io::Result<Times> {
    let pause = Duration::from_millis(options.pause);
    let (mut client, mut times) = (TcpStream::connect(addr).await?, Times::default());
    client.set_nodelay(true)?;
    for _ in 0..options.requests {
        let asked = Instant::now();
        client.write_all(b"GET /tokens HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let (mut seen, mut last, mut answer) = (0, asked, Vec::new());
        while !answer.ends_with(b"\r\n0\r\n\r\n") {
            if client.read_buf(&mut answer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{addr} ended a response early")));
            }
            let now = Instant::now();
            let arrived = answer.windows(5).filter(|bytes| bytes == b"token").count();
            if seen == 0 && arrived > 0 {
                times.first.push(now - asked);
                last = now;
            }
            for _ in seen.max(1)..arrived {
                times.late.push((now - last).saturating_sub(pause));
                last = now;
            }
            seen = arrived;
        }
        times.whole.push(asked.elapsed());
    }
    Ok(times)
}

/// Returns a percentile in milliseconds.
fn percentile(times: &mut [Duration], percent: usize) -> String {
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * percent / 100;
    times.get(at).map_or("-".into(), |time| format!("{:.2}", time.as_secs_f64() * 1e3))
}

fn pair(times: &mut [Duration]) -> String {
    format!("{} / {} ms", percentile(times, 50), percentile(times, 99))
}

fn half(times: &mut [Duration]) -> String {
    format!("{} ms", percentile(times, 50))
}
