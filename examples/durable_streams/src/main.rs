//! A server for the [Durable Streams protocol](https://github.com/durable-streams/durable-streams): each path is a
//! stream that clients create, append to, read, follow live, fork and close by HTTP.
//!
//! An append is answered when it is on the disk. All appends that wait, of all streams, are committed together. After a
//! crash or a power cut, the next process has every append that was answered.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use http::HeaderValue;
use millstream::net::TcpListener;
use millstream::server::{self, Limits};
use tokio::signal::unix::{SignalKind, signal};

use service::App;
use store::Store;
use subscriptions::Subscriptions;

mod body;
mod control;
mod fields;
mod json;
mod live;
mod read;
mod refusal;
mod service;
mod store;
mod subscriptions;
mod write;

/// A server for the Durable Streams protocol.
#[derive(Debug, Parser)]
#[command(name = "durable_streams")]
struct Args {
    /// Address to listen on; port 0 chooses one, which is printed.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4437")]
    listen: SocketAddr,
    /// Directory of the streams; it is created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "streams")]
    dir: PathBuf,
    /// Number of threads that serve.
    #[arg(long, value_name = "N", default_value_t = cpus())]
    workers: NonZeroUsize,
    /// Largest body of a request, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=256))]
    max_body: u64,
    /// Largest number of streams.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_streams: usize,
    /// Size of each of the four segments of the journal, in MiB; at least eight bodies. Their records are in memory,
    /// too, and their files have a quarter more.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(8..=4096))]
    journal: u64,
    /// Time after which a long poll without news is answered, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    long_poll: u64,
    /// Time after which a connection with events ends, and the client comes again, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    events: u64,
    /// Origin whose pages may use the streams, or * for all; without it browsers refuse them.
    #[arg(long, value_name = "ORIGIN", value_parser = |origin: &str| HeaderValue::try_from(origin))]
    cors: Option<HeaderValue>,
    /// Scheme and host by which clients reach the server, for the URLs that subscriptions tell, as in https://a.example;
    /// without it http and the host of the request.
    #[arg(long, value_name = "URL")]
    public: Option<String>,
    /// Let subscriptions have webhooks on this machine, by plain HTTP too, for development.
    #[arg(long)]
    local_webhooks: bool,
}

/// Time for requests to finish after a signal.
const PATIENCE: Duration = Duration::from_secs(10);

fn cpus() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> Result<(), String> {
    if args.journal < 8 * args.max_body {
        return Err(format!("--journal: {} MiB are less than eight bodies of {} MiB", args.journal, args.max_body));
    }
    let mut builder = match args.workers.get() {
        // Several threads add hand-overs.
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(args.workers.get()).enable_all().build();
    runtime.map_err(|e| format!("the runtime did not start: {e}"))?.block_on(run(args))
}

async fn run(args: &Args) -> Result<(), String> {
    let opened = Store::open(&args.dir, args.journal << 20, args.max_streams).await;
    let (store, end) = opened.map_err(|e| e.to_string())?;
    let listener = TcpListener::bind(args.listen).await.map_err(|e| format!("--listen {}: {e}", args.listen))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;

    let (journal, dir) = (Arc::clone(&store), args.dir.clone());
    let mut commits = tokio::spawn(async move { journal.journal.run(dir, end).await });
    let mut files = tokio::spawn(Arc::clone(&store).maintain());

    let public = args.public.as_deref().map(|url| url.trim_end_matches('/').to_owned());
    let subscriptions = Subscriptions::open(Arc::clone(&store), &args.dir, args.local_webhooks, public)?;
    let (long_poll, events) = (Duration::from_secs(args.long_poll), Duration::from_secs(args.events));
    let app = Arc::new(App::new(
        Arc::clone(&store),
        subscriptions,
        args.max_body << 20,
        long_poll,
        events,
        args.cors.clone(),
    ));
    println!("http://{address}/ serves {} streams of {}", store.streams(), args.dir.display());

    let service = tower::service_fn({
        let app = Arc::clone(&app);
        move |request| Arc::clone(&app).answer(request)
    });
    let ended = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        app.ending.cancel();
    };
    let limits = Limits::default().body(args.max_body << 20);
    let served = tokio::select! {
        served = server::serve(listener, service).limits(limits).drain(ended, PATIENCE) => served,
        // They never end by themselves, but they may panic.
        _ = &mut commits => return Err("the journal has failed".into()),
        _ = &mut files => return Err("the files of the streams have failed".into()),
    };
    // No request waits for these tasks, and the next process begins with the records on the disk.
    commits.abort();
    files.abort();
    let _ = (commits.await, files.await);
    served.map(drop).map_err(|e| format!("{address}: {e}"))
}
