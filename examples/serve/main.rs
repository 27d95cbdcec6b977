//! A directory, events and tokens, served by millstream. Try it:
//!
//! `cargo run --release --example serve` serves the current directory on `http://127.0.0.1:8080/`;
//! `-- [--listen ADDR] [--root DIR] [--workers N] [--per-core]` changes that. It ends at Ctrl-C.
//!
//! The service below is an ordinary tower service and its bodies are ordinary bodies. What is millstream's is the listener,
//! the files, and `serve`; the `stock` example answers the same routes without them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use millstream::Capabilities;
use millstream::http::{FileBody, Files, RequestBody};
use millstream::net::TcpListener;
use millstream::runtime::Cores;

use common::{Options, Reply, Route, route};

#[path = "../common/mod.rs"]
mod common;
mod page;

/// The page needs its own script, style and events, and nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:",
);

fn main() -> ExitCode {
    let mut on_cores = false;
    let result = Options::parse("serve", 8080, Some(&mut on_cores)).and_then(|options| match on_cores {
        true => per_core(&options),
        false => {
            let runtime = common::runtime(options.workers).map_err(|e| format!("the runtime did not start: {e}"))?;
            runtime.block_on(run(&options))
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

/// On one runtime, whose threads share everything.
async fn run(options: &Options) -> Result<(), String> {
    let app = App::new(options)?;
    let listener = TcpListener::bind(options.listen).await.map_err(elsewhere)?;
    let address = listener.local_addr().map_err(|e| format!("{}: {e}", options.listen))?;
    greet(options, address);
    until_interrupted(listener, app).await.map_err(|e| format!("{address}: {e}"))
}

/// On a runtime for each thread, and a listener for each runtime.
fn per_core(options: &Options) -> Result<(), String> {
    let app = App::new(options)?;
    let cores = Cores::new(options.workers.get()).map_err(|e| e.to_string())?;
    let listeners = TcpListener::builder().bind_each(options.listen, cores.count()).map_err(elsewhere)?;
    let address = listeners.local_addr();
    greet(options, address);
    let served = cores.run(move |_| {
        let (listener, app) = (listeners.take(), app.clone());
        async move { until_interrupted(listener?, app).await }
    });
    served.wait().map(drop).map_err(|e| format!("{address}: {e}"))
}

fn elsewhere(error: io::Error) -> String {
    format!("{error}; choose another address with --listen")
}

fn greet(options: &Options, address: SocketAddr) {
    let Options { root, workers, .. } = options;
    println!("http://{address}/ serves {}, workers: {workers}\n{}", root.display(), Capabilities::get());
}

async fn until_interrupted(listener: TcpListener, app: Arc<App>) -> io::Result<()> {
    let service = tower::service_fn(move |request| answer(request, app.clone()));
    tokio::select! {
        served = millstream::http::serve(listener, service) => served,
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

/// What requests share.
struct App {
    root: PathBuf,
    files: Files,
}

impl App {
    fn new(Options { root, .. }: &Options) -> Result<Arc<Self>, String> {
        let files =
            Files::builder(root).mounted_at("/f").build().map_err(|e| format!("--root {}: {e}", root.display()))?;
        Ok(Arc::new(Self { root: root.clone(), files }))
    }
}

async fn answer(request: Request<RequestBody>, app: Arc<App>) -> Result<Response<Reply<FileBody>>, Infallible> {
    match route(&request) {
        Route::Index => {
            let page = tokio::task::spawn_blocking(move || page::render_blocking(&app.root)).await;
            let page = page.unwrap_or_else(|e| format!("the page could not be made: {e}"));
            let mut response = Reply::Whole { body: Full::from(page) }.of("text/html; charset=utf-8");
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
            Ok(response)
        }
        Route::File => {
            let found = app.files.get(request.method(), request.uri(), request.headers()).await?;
            Ok(found.map(|body| Reply::File { body }))
        }
        Route::Done(response) => Ok(response),
    }
}
