//! An axum application on millstream's listener: one line of `main` differs from stock axum. It also serves files.
//!
//! `cargo run --release --example axum_one_line` serves the current directory under `/f/` on
//! `http://127.0.0.1:8080/`. `-- --listen ADDR` gives another address.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use futures_util::{Stream, stream};
use tokio::time::interval;

#[path = "common/cli.rs"]
mod cli;

/// An axum application on millstream's listener.
#[derive(Parser)]
struct Options {
    /// Address and port; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await.map_err(|e| e.to_string()))
}

async fn run(options: Options) -> std::io::Result<()> {
    let app = Router::new()
        .route("/hello", get(async || Json(BTreeMap::from([("msg", "ok")]))))
        .route("/events", get(events))
        // `Files` is an ordinary tower service.
        .nest_service("/f", millstream::files::Files::new(".")?);

    // Stock axum passes tokio's listener here.
    let listener = millstream::net::TcpListener::bind(options.listen).await?;
    println!("http://{}/hello  /events  /f/NAME", listener.local_addr()?);
    axum::serve(listener, app).await
}

/// Streams ten numbered events a second, with axum's own type.
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = stream::unfold((interval(Duration::from_millis(100)), 0_u64), async |(mut ticks, number)| {
        ticks.tick().await;
        let event = Event::default().id(number.to_string()).data(format!("event {number}"));
        Some((Ok(event), (ticks, number + 1)))
    });
    Sse::new(ticks).keep_alive(KeepAlive::default())
}
