//! Two instances of a service that streams tokens, on one Redis, and a client that moves between them repeatedly in the
//! middle of an answer:
//!
//! `cargo run --release --features redis --example tokens_fleet`; `--help` lists the options. The program ends by
//! itself, with status 0 if the client received every token exactly once.
//!
//! Each answer is one stream in Redis, and a `Hub` in each instance that serves it. The client does only what a
//! browser's `EventSource` does: it sends the id of the last event.

use std::process::ExitCode;

use client::Client;
use instance::Instance;
use options::{Options, USAGE};
use own_redis::OwnRedis;

mod client;
mod instance;
mod options;
mod own_redis;
#[path = "../common/report.rs"]
mod report;

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => run(options).await,
        Err(text) => Err(text),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) if text == USAGE => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every token arrived exactly once.
async fn run(options: Options) -> Result<bool, String> {
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
    Ok(verdict.is_whole())
}
