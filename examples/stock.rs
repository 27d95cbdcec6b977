//! The baseline: the same service with tokio, hyper and tower-http alone, with TCP_NODELAY.
//!
//! `cargo run --release --example stock -- --root DIR` answers the routes of the
//! `serve` example, so that both can be compared under the same load.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_http::services::fs::{ServeDir, ServeFileSystemResponseBody};

use common::{Options, Reply, Route, cli, route};

mod common;

const INDEX: &str = "plain hyper: /hello  /f/NAME  /tokens  /events?hz=N\n";

/// Answers the routes of the `serve` example with tokio, hyper and tower-http alone.
#[derive(Parser)]
#[command(mut_arg("listen", |listen| listen.default_value("127.0.0.1:8081")))]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let Args { options } = Args::parse();
    let served = cli::runtime(options.workers).and_then(|runtime| {
        let served = runtime.block_on(run(&options));
        served.map_err(|e| format!("{}: {e}; choose another address with --listen", options.listen))
    });
    cli::exit(served)
}

async fn run(options: &Options) -> io::Result<()> {
    let listener = TcpListener::bind(options.listen).await?;
    let interrupted = cli::interrupted()?;
    println!("http://{}/ serves {}, workers: {}", listener.local_addr()?, options.root.display(), options.workers);
    tokio::select! {
        () = accept(listener, &options.root) => Ok(()),
        () = interrupted => Ok(()),
    }
}

async fn accept(listener: TcpListener, root: &Path) {
    let files = Arc::new(ServeDir::new(root));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Without a timer hyper has no header timeout.
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                eprintln!("accept: {e}; trying again");
                // Out of descriptors or memory: retry after other connections had time to end.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if stream.set_nodelay(true).is_err() {
            // The peer is already gone.
            continue;
        }
        let (builder, files) = (builder.clone(), files.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, files.clone()));
            // hyper reports a client that disconnects in the middle of a stream as an error; a server ignores it.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Answer = Response<Reply<ServeFileSystemResponseBody>>;

async fn answer(mut request: Request<Incoming>, files: Arc<ServeDir>) -> Result<Answer, Infallible> {
    match route(&request) {
        Route::Index => Ok(Reply::Whole { body: Full::from(INDEX) }.of("text/plain; charset=utf-8")),
        Route::File => {
            // ServeDir treats the whole path as relative to its directory.
            let below = request.uri().path().strip_prefix("/f").and_then(|path| path.parse().ok());
            *request.uri_mut() = below.unwrap_or_default();
            Ok(ServeDir::clone(&files).oneshot(request).await?.map(|body| Reply::File { body }))
        }
        Route::Done(response) => Ok(response),
    }
}
