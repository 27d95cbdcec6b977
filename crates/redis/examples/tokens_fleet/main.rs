//! Two instances of a service that streams tokens, on one Redis, and a client that moves between them repeatedly in the
//! middle of an answer:
//!
//! `cargo run --release -p millstream-redis --example tokens_fleet`; `--help` lists the options. The program ends by
//! itself, with status 0 if the client received every token exactly once.
//!
//! Each answer is one stream in Redis, and a `Hub` in each instance that serves it. The client does only what a
//! browser's `EventSource` does: it sends the id of the last event.

use std::process::ExitCode;

use clap::Parser;

use client::Client;
use instance::Instance;
use own_redis::OwnRedis;

#[path = "../../../../examples/common/cli.rs"]
mod cli;
mod client;
mod instance;
mod own_redis;
#[path = "../../../../examples/common/report.rs"]
mod report;

/// A client that moves between two instances of a token service in the middle of an answer.
#[derive(Parser)]
struct Options {
    /// A running Redis, such as redis://127.0.0.1/; by default starts a redis-server.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Number of moves of the client.
    #[arg(long, value_name = "N", default_value_t = 6)]
    cuts: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await)
}

/// Fails unless every token arrived exactly once.
async fn run(options: Options) -> Result<(), String> {
    let own = match &options.redis {
        Some(_) => None,
        None => Some(OwnRedis::start().await?),
    };
    let url = options.redis.or_else(|| Some(own.as_ref()?.url())).ok_or("no Redis")?;
    let instances = [Instance::start("A", &url).await?, Instance::start("B", &url).await?];
    for instance in &instances {
        println!("instance {} on http://{}/", instance.name, instance.addr);
    }
    // Unique, because the Redis may be shared.
    let answer = format!("{}-{}", std::process::id(), instances[0].addr.port());
    let mut client = Client::new(&instances, &answer);
    client.ask().await?;
    println!("\n{answer}:");
    client.read(options.cuts).await?;
    let verdict = client.verdict();
    println!("\n\n{verdict}");
    if verdict.is_whole() { Ok(()) } else { Err("tokens are missing or came twice".to_owned()) }
}
