//! A gateway in front of language models: the streaming API of OpenAI, with answers that survive a reload, are stopped on
//! request, and are cancelled without readers.
//!
//! `cargo run --release -p llm_gateway` serves a fake model on `http://127.0.0.1:8088/`; `--upstream http://HOST:PORT`
//! serves real ones; `--help` lists the options. Ctrl-C or SIGTERM ends it, after the answers in progress.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::uri::Authority;
use clap::Parser;
use millstream::net::TcpListener;
use millstream::server::{self, Limits};
use millstream_layers::AllowedHostsLayer;
use tokio::signal::unix::{SignalKind, signal};

use fake::Fake;
use gateway::Gateway;
use generation::Generations;
use keys::{KeyOption, Keys};
use upstream::Upstreams;

mod chat;
mod error;
mod events;
mod fake;
mod gateway;
mod generation;
mod keys;
#[cfg(test)]
mod tests;
mod upstream;

/// A gateway in front of language models.
#[derive(Clone, Debug, Parser)]
#[command(name = "llm_gateway")]
struct Args {
    /// Address to listen on; port 0 chooses one, which is printed.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8088")]
    listen: SocketAddr,
    /// A server with the API of OpenAI, as http://HOST:PORT; may be repeated. Its key is in UPSTREAM_API_KEY.
    #[arg(long = "upstream", value_name = "URL", value_parser = upstream::authority)]
    upstreams: Vec<Authority>,
    /// Serves the fake model, which is the default without --upstream.
    #[arg(long, conflicts_with = "upstreams")]
    fake: bool,
    /// Serves the fake model alone, as an upstream.
    #[arg(long, conflicts_with_all = ["upstreams", "fake"])]
    fake_only: bool,
    /// Time between two tokens of the fake model.
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pace: Duration,
    /// Time before the first token of the fake model.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    think: Duration,
    /// A client, with its secret and its limit of concurrent requests; may be repeated.
    #[arg(long = "key", value_name = "NAME=SECRET[:REQUESTS]")]
    keys: Vec<KeyOption>,
    /// Limit of concurrent requests of a key without its own.
    #[arg(long, value_name = "N", default_value_t = 64)]
    concurrent: usize,
    /// Time after which an answer without readers is cancelled.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    grace: Duration,
    /// Time for which an answer can be read after its end.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = duration)]
    keep: Duration,
    /// Time after which a silent stream gets a comment, so that no proxy ends it.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    ping: Duration,
    /// Time after which a silent upstream has failed.
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = duration)]
    silence: Duration,
    /// Time for answers to finish after a signal.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    drain: Duration,
    /// A host that is accepted besides IP addresses and localhost, if there are no keys; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

/// Reads a number of milliseconds or seconds: `20ms`, `1.5s`.
fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').ok_or("write 20ms or 1.5s")?, 1.0),
    };
    let seconds = number.parse::<f64>().map_err(|_| "it is not a number")? * scale;
    Duration::try_from_secs_f64(seconds).map_err(|_| "it is no duration")
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), String> {
    let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    let fake = Fake::new(args.pace, args.think);
    let listener = listen(args.listen).await?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let (router, what) = match args.fake_only {
        true => (fake.router(), "the fake model alone".to_owned()),
        false => {
            let gateway = gateway(&args, fake).await?;
            let who = if gateway.keys.is_open { "anyone: there is no --key" } else { "clients with a key" };
            (open(&args, gateway)?, format!("{} to {who}", models(&args)))
        }
    };
    println!("http://{address}/ serves {what}");
    let signal = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let limits = Limits::default().body(gateway::LONGEST as u64);
    let served = server::serve(listener, router).limits(limits).drain(signal, args.drain).await;
    let drained = served.map_err(|e| format!("{address}: {e}"))?;
    println!("{} connections finished, {} were cut off", drained.finished, drained.aborted);
    Ok(())
}

fn on(kind: SignalKind) -> Result<tokio::signal::unix::Signal, String> {
    signal(kind).map_err(|e| e.to_string())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|e| format!("{e}; choose another address with --listen"))
}

fn models(args: &Args) -> String {
    let names: Vec<_> = args.upstreams.iter().map(Authority::as_str).collect();
    if names.is_empty() { "the fake model".to_owned() } else { names.join(", ") }
}

/// Returns the gateway. Without upstreams, the fake model is one, on an address of its own.
async fn gateway(args: &Args, fake: Fake) -> Result<Arc<Gateway>, String> {
    let mut upstreams = args.upstreams.clone();
    if upstreams.is_empty() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr().map_err(|e| e.to_string())?;
        upstreams.push(Authority::try_from(address.to_string()).map_err(|e| e.to_string())?);
        tokio::spawn(server::serve(listener, fake.router()).into_future());
    }
    let key = std::env::var("UPSTREAM_API_KEY").ok();
    Ok(Arc::new(Gateway {
        keys: Keys::new(&args.keys, args.concurrent, || Generations::new(args.grace, args.ping, args.keep))?,
        upstreams: Arc::new(Upstreams::new(upstreams, args.silence, key.as_deref())?),
    }))
}

/// Returns the service of the gateway. Without keys, pages of other sites must not reach it by a name of their own.
fn open(args: &Args, gateway: Arc<Gateway>) -> Result<Router, String> {
    let is_open = gateway.keys.is_open;
    let router = gateway::router(gateway);
    if !is_open {
        return Ok(router);
    }
    let local = AllowedHostsLayer::local();
    let hosts = args.hosts.iter().try_fold(local, |hosts, name| hosts.and(name).map_err(|e| format!("--host: {e}")))?;
    Ok(router.layer(hosts))
}
