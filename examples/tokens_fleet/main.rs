//! Two instances of a service that streams tokens, on one Redis, and a client that is moved from one to the other in the
//! middle of an answer, again and again:
//!
//! `cargo run --release --features redis --example tokens_fleet`; `--help` tells the rest. It ends by itself, with
//! status 0 if the client has had every token once.
//!
//! Each answer is a stream of its own in Redis, and a `Hub` in each instance that is asked for it. The client only does
//! what a browser's `EventSource` does: it sends the id of the last event it had.

use std::process::ExitCode;

use client::Client;
use instance::Instance;
use options::{Options, USAGE};
use own_redis::OwnRedis;

mod client;
mod instance;
mod options;
mod own_redis;

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

/// Whether every token came once.
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
    // Like no other's, if the Redis is shared.
    let answer = format!("{}-{}", std::process::id(), instances[0].addr.port());
    let mut client = Client::new(&instances, &answer);
    client.ask().await?;
    println!("\n{answer}:");
    client.read(options.cuts).await?;
    let verdict = client.verdict();
    println!("\n\n{verdict}");
    Ok(verdict.is_whole())
}
