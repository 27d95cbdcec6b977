//! Streams tokens from a server straight and through a [`Proxy`](millstream_proxy::Proxy), and prints when they arrive.
//!
//! ```text
//! cargo run --release -p millstream-proxy --example first_token
//! ```
//!
//! Server, proxy and clients have one thread each. The ways are measured by turns, in rounds of three responses to each
//! client. Clients keep their connections and begin one after another. `--upstream` fixes the address of the server, so
//! that another proxy in front of it can be measured beside, by `--also ADDRESS`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use measuring::latencies::Latencies;
use millstream::net::TcpListener;
use millstream::server::{self, RequestBody};
use millstream_proxy::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::time::{interval_at, sleep};
use tower::service_fn;

#[path = "../../../examples/common/cli.rs"]
mod cli;

/// Streams tokens straight and through a proxy, and prints when they arrive.
#[derive(Clone, Copy, Parser)]
struct Options {
    /// Clients at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// Tokens of each response.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Milliseconds from one token to the next.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pause: u64,
    /// Rounds of each way, after one to warm up.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Address of the server; port 0 chooses a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    upstream: SocketAddr,
    /// Another proxy in front of the server.
    #[arg(long, value_name = "ADDRESS")]
    also: Option<SocketAddr>,
}

fn main() -> ExitCode {
    cli::exit(run(Options::parse()))
}

fn run(options: Options) -> Result<(), String> {
    let Options { streams, tokens, pause, rounds, upstream, also } = options;
    let server = start(upstream, service_fn(move |_: Request<RequestBody>| async move { answer(options) }))?;
    let target = format!("http://{server}").parse().map_err(|e| format!("{server}: {e}"))?;
    let proxy = Proxy::new(target).map_err(|e| e.to_string())?;
    let proxy = start(([127, 0, 0, 1], 0).into(), proxy)?;
    let mut ways = vec![Way::new("straight", server), Way::new("Proxy", proxy)];
    ways.extend(also.map(|addr| Way::new("also", addr)));

    println!("{tokens} tokens, one each {pause} ms, to {streams} clients, {rounds} rounds of {RESPONSES} responses");
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    // The first round warms up.
    for _ in 0..=rounds {
        for way in &mut ways {
            runtime.block_on(way.round(options)).map_err(|e| format!("{}: {e}", way.name))?;
        }
    }
    println!("{:12}{:>26}{:>14}", "way", "first token, p50/p99", "added, p50");
    let straight = ways[0].first.quantile(0.5);
    for Way { name, first, .. } in &ways {
        let [p50, p99] = [0.5, 0.99].map(|share| first.quantile(share).unwrap_or_default().as_secs_f64() * 1e6);
        let added = p50 - straight.unwrap_or_default().as_secs_f64() * 1e6;
        println!("{name:12}{:>26}{added:>11.0} µs", format!("{p50:.0} / {p99:.0} µs"));
    }
    Ok(())
}

/// Answers with tokens, the first at once.
fn answer(options: Options) -> Result<Response<TokenBody>, Infallible> {
    let pause = Duration::from_millis(options.pause);
    // A first tick that is due at once takes up to a millisecond.
    let ticks = interval_at(tokio::time::Instant::now() + pause, pause);
    let frames = stream::unfold((ticks, options.tokens), move |(mut ticks, left)| async move {
        let next = left.checked_sub(1)?;
        if left < options.tokens {
            ticks.tick().await;
        }
        Some((Ok(Frame::data(Bytes::from_static(b"data: token\n\n"))), (ticks, next)))
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    Ok(response.body(StreamBody::new(Box::pin(frames) as _)).expect("the field is valid"))
}

type TokenBody = StreamBody<std::pin::Pin<Box<dyn futures_util::Stream<Item = io::Result<Frame<Bytes>>> + Send>>>;

/// Serves on a thread of its own, until the process ends. Returns the address.
fn start<S, B>(addr: SocketAddr, service: S) -> Result<SocketAddr, String>
where
    S: tower::Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send,
    S: 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let listener = std::net::TcpListener::bind(addr).map_err(|e| format!("{addr}: {e}"))?;
    let addr = listener.local_addr().map_err(|e| e.to_string())?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            listener.set_nonblocking(true)?;
            server::serve(TcpListener::from_std(listener)?, service).await
        })
    });
    Ok(addr)
}

/// Responses to a client in a round.
const RESPONSES: usize = 3;

/// Where clients connect to, and when their tokens arrived.
struct Way {
    name: &'static str,
    addr: SocketAddr,
    clients: Vec<TcpStream>,
    first: Latencies,
}

impl Way {
    fn new(name: &'static str, addr: SocketAddr) -> Self {
        Self { name, addr, clients: Vec::new(), first: Latencies::default() }
    }

    /// Sends requests on each connection. The first round is not counted.
    async fn round(&mut self, options: Options) -> io::Result<()> {
        let counts = !self.clients.is_empty();
        while self.clients.len() < options.streams as usize {
            let client = TcpStream::connect(self.addr).await?;
            client.set_nodelay(true)?;
            self.clients.push(client);
        }
        let apart = Duration::from_millis(options.pause) * u32::try_from(options.tokens).unwrap_or(1) / options.streams;
        let tasks: Vec<_> = (0..options.streams)
            .zip(self.clients.drain(..))
            .map(|(n, client)| tokio::spawn(ask(client, apart * n)))
            .collect();
        for task in tasks {
            let (client, first) = task.await.map_err(io::Error::other)??;
            self.clients.push(client);
            for first in first.into_iter().filter(|_| counts) {
                self.first.record(first, 1);
            }
        }
        Ok(())
    }
}

/// Returns the times from the requests to their first tokens.
async fn ask(mut client: TcpStream, after: Duration) -> io::Result<(TcpStream, Vec<Duration>)> {
    sleep(after).await;
    let mut times = Vec::with_capacity(RESPONSES);
    for _ in 0..RESPONSES {
        let (asked, mut answer) = (Instant::now(), Vec::new());
        client.write_all(b"GET / HTTP/1.1\r\nhost: tokens\r\n\r\n").await?;
        let mut has_token = false;
        while !answer.ends_with(b"\r\n0\r\n\r\n") {
            if client.read_buf(&mut answer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a response ended early"));
            }
            if !has_token && answer.windows(5).any(|bytes| bytes == b"token") {
                has_token = true;
                times.push(asked.elapsed());
            }
        }
    }
    Ok((client, times))
}
