//! Serves a directory, events and tokens with millstream, and a page that shows the activity of the process.
//!
//! `cargo run --release --example serve` serves the current directory on `http://127.0.0.1:8080/`; `-- --help` lists
//! the options that change that. Ctrl-C or SIGTERM ends it, after the requests in progress.
//!
//! The service is an ordinary tower service with ordinary bodies. millstream provides the listener, the files, the
//! metrics with their events, and `serve`; the `stock` example answers the same routes without millstream.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::{io, mem};

use clap::Parser;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use millstream::Capabilities;
use millstream::files::{Files, FilesBody};
use millstream::middleware::{Measure, Route as Name};
use millstream::net::{Accept, TcpListener};
use millstream::runtime::Cores;
use millstream::server::{HttpService, RequestBody, Server, UntilDrain, until_drain};
use millstream::sse::log::disk::Disk;
use millstream::sse::{EventBody, Hub, HubBuilder};
use millstream_handoff::{Handoff, notify, start_successor};
use millstream_layers::AllowedHostsLayer;
use tokio::signal::unix::{SignalKind, signal};
use tower::Layer;

use common::{Options, Reply, Route, cli, route};
use numbers::Numbers;
use site::Site;
use upload::Uploads;

#[cfg(test)]
mod browser;
#[path = "../common/mod.rs"]
mod common;
mod numbers;
mod page;
mod site;
#[cfg(test)]
mod tests;
mod upload;

/// Serves a directory, events and tokens, and a page with live numbers.
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Gives each thread a runtime, a listener and a CPU of its own.
    #[arg(long)]
    per_core: bool,
    /// Address of GET /metrics, which must be a loopback address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    metrics: SocketAddr,
    /// Permits other addresses for the metrics; restrict access to them yourself.
    #[arg(long)]
    metrics_anywhere: bool,
    /// A directory for the numbers of the page, which then survive a restart.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// An accepted host besides IP addresses and localhost; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// A control socket. A server that is started with the same one takes the place of this one, and gets its connections.
    /// At SIGUSR2 this server starts that one itself. Under systemd, see recipes/.
    #[arg(long, value_name = "PATH", conflicts_with = "per_core")]
    handoff: Option<PathBuf>,
    #[command(flatten)]
    site: Site,
    #[command(flatten)]
    uploads: Uploads,
}

fn main() -> ExitCode {
    cli::exit(start(Args::parse()))
}

fn start(
    Args { options, site, uploads, per_core: apart, metrics, metrics_anywhere, log, handoff, hosts }: Args,
) -> Result<(), String> {
    let local = AllowedHostsLayer::local();
    let hosts = hosts.iter().try_fold(local, |hosts, name| hosts.and(name).map_err(|e| format!("--host: {e}")))?;
    if apart {
        let numbers = Numbers::start(metrics, metrics_anywhere, hosts.clone(), async |hub| live(hub, log, None).await)?;
        return per_core(&options, &site, &uploads, &numbers, hosts);
    }
    let runtime = cli::runtime(options.workers)?;
    let handoff = handoff.map(|path| runtime.block_on(Handoff::open(path)));
    let mut handoff = handoff.transpose().map_err(|e| format!("--handoff: {e}"))?;
    let build = async |hub| live(hub, log, handoff.as_mut()).await;
    let numbers = Numbers::start(metrics, metrics_anywhere, hosts.clone(), build)?;
    runtime.block_on(async {
        let app = App::new(&options, &site, &uploads, &numbers, hosts)?;
        match handoff {
            Some(handoff) => run_replaced(handoff, &options, &numbers, app).await,
            None => run(&options, &numbers, app).await,
        }
    })
}

/// Builds the hub of the page. With a directory its events survive a restart. With a handoff it takes the place of the one
/// of the server before.
async fn live(hub: HubBuilder, log: Option<PathBuf>, handoff: Option<&mut Handoff>) -> Result<Hub, String> {
    let open = log.map(|dir| {
        move || {
            let disk = Disk::builder(&dir).keep_bytes(64 << 20);
            async { Ok(disk.open().await?) }
        }
    });
    let failed = |e: io::Error| format!("--log: {}", common::report(&e));
    let Some(handoff) = handoff else {
        let Some(open) = open else { return Ok(hub.build()) };
        return Ok(hub.log(open().await.map_err(failed)?).build());
    };
    let hub = match open {
        Some(open) => hub.log(handoff.log(open).await.map_err(failed)?).build(),
        None => hub.build(),
    };
    handoff.hub("live", &hub).map_err(|e| format!("--handoff: {e}"))?;
    Ok(hub)
}

/// Serves on one runtime with shared state.
async fn run(options: &Options, numbers: &Numbers, app: Arc<App>) -> Result<(), String> {
    let listener = TcpListener::bind(options.listen).await.map_err(elsewhere)?;
    let address = listener.local_addr().map_err(|e| format!("{}: {e}", options.listen))?;
    let interrupted = cli::interrupted().map_err(|e| e.to_string())?;
    print_banner(options, address, numbers);
    server(listener, app).drain(interrupted, cli::PATIENCE).await.map_err(|e| format!("{address}: {e}")).map(drop)
}

/// As [`run`], until another server takes the place of this one.
async fn run_replaced(mut handoff: Handoff, options: &Options, numbers: &Numbers, app: Arc<App>) -> Result<(), String> {
    let listener = handoff.tcp("http", options.listen).await.map_err(elsewhere)?;
    let address = listener.get_ref().local_addr().map_err(|e| format!("{}: {e}", options.listen))?;
    // From here on the signal does not end this process.
    drop(replaced().map_err(|e| e.to_string())?);
    handoff.store_listeners();
    // A service manager that knows this process may end it.
    let mut interrupted = cli::interrupted().map_err(|e| e.to_string())?;
    let serving = handoff.ready().await.map_err(|e| format!("--handoff: {e}"))?;
    print_banner(options, address, numbers);
    loop {
        // Also sees a signal that comes while this server drains for one that fails.
        let next = cli::interrupted().map_err(|e| e.to_string())?;
        let (interrupted, successor) = (mem::replace(&mut interrupted, next), serving.successor());
        let replaced = replaced().map_err(|e| e.to_string())?;
        let signal = async move {
            tokio::select! {
                // A service manager that cannot be told does not matter any more.
                () = interrupted => drop(notify("STOPPING=1").await),
                () = successor => {}
                () = replaced => {}
            }
        };
        let server = server(listener.clone(), Arc::clone(&app)).move_connections(listener.give());
        let drained = server.drain(signal, cli::PATIENCE).await.map_err(|e| format!("{address}: {e}"))?;
        match serving.finish().await {
            Ok(Some(given)) => println!("{given} connections moved to the next server; {drained:?}"),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(error.to_string()),
            Err(error) => {
                eprintln!("the next server has failed, so this one goes on: {error}");
                continue;
            }
        }
        return Ok(());
    }
}

/// Starts the next server at SIGUSR2. Never ends, because a server that is ready says so itself.
fn replaced() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut replace = signal(SignalKind::user_defined2())?;
    Ok(async move {
        loop {
            replace.recv().await;
            eprintln!("the next server has failed, so this one goes on: {}", start_successor().await);
        }
    })
}

/// Serves with one runtime and one listener for each thread.
fn per_core(
    options: &Options,
    site: &Site,
    uploads: &Uploads,
    numbers: &Numbers,
    hosts: AllowedHostsLayer,
) -> Result<(), String> {
    let app = App::new(options, site, uploads, numbers, hosts)?;
    let cores = Cores::new(options.workers.get()).map_err(|e| e.to_string())?;
    let listeners = TcpListener::builder().bind_each(options.listen, cores.count()).map_err(elsewhere)?;
    let address = listeners.local_addr();
    print_banner(options, address, numbers);
    let served = cores.run(move |_| {
        let (listener, app) = (listeners.take(), app.clone());
        async move { until_interrupted(listener?, app).await }
    });
    served.wait().map(drop).map_err(|e| format!("{address}: {e}"))
}

fn elsewhere(error: io::Error) -> String {
    format!("{error}; choose another address with --listen")
}

fn print_banner(options: &Options, address: SocketAddr, numbers: &Numbers) {
    let Options { root, workers, .. } = options;
    println!("http://{address}/ serves {}, workers: {workers}", root.display());
    println!("http://{}/metrics serves the metrics\n{}", numbers.address(), Capabilities::get());
}

async fn until_interrupted(listener: TcpListener, app: Arc<App>) -> io::Result<()> {
    server(listener, app).drain(cli::interrupted()?, cli::PATIENCE).await.map(drop)
}

fn server<L: Accept>(listener: L, app: Arc<App>) -> Server<L, impl HttpService> {
    let service = tower::service_fn(move |request| answer(request, app.clone()));
    millstream::server::serve(listener, Measure::new().layer(service))
}

struct App {
    root: PathBuf,
    files: Files,
    live: Hub,
    names: Names,
    hosts: AllowedHostsLayer,
    uploads: Uploads,
}

struct Names {
    page: Name,
    live: Name,
    files: Name,
    uploads: Name,
}

impl App {
    fn new(
        Options { root, .. }: &Options,
        site: &Site,
        uploads: &Uploads,
        numbers: &Numbers,
        hosts: AllowedHostsLayer,
    ) -> Result<Arc<Self>, String> {
        let files = site.open(Files::builder(root).mounted_at("/f"))?;
        let names = Names {
            page: Name::new("/"),
            live: Name::new("/live"),
            files: Name::new("/f/{name}"),
            uploads: Name::new("/upload/{name}"),
        };
        Ok(Arc::new(Self { root: root.clone(), files, live: numbers.live(), names, hosts, uploads: uploads.clone() }))
    }
}

type Body = Either<Reply<FilesBody>, Either<EventBody, UntilDrain<Reply<FilesBody>>>>;

async fn answer(request: Request<RequestBody>, app: Arc<App>) -> Result<Response<Body>, Infallible> {
    if !app.hosts.allows(&request) {
        let text = "this host is not accepted; start the server with --host NAME\n";
        let mut response = Reply::Whole { body: Full::from(text) }.of("text/plain; charset=utf-8");
        *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
        return Ok(response.map(Either::Left));
    }
    if request.uri().path() == "/live" {
        return Ok(named(app.names.live, app.live.subscribe(&request)).map(Either::Left).map(Either::Right));
    }
    if let Some((dir, name)) = app.uploads.wants(request.uri().path()) {
        let name = name.to_owned();
        return Ok(named(app.names.uploads, upload::save(dir, name, request).await).map(Either::Left));
    }
    let response = match route(&request) {
        Route::Index => {
            let shared = app.clone();
            let page = tokio::task::spawn_blocking(move || page::render_blocking(&shared.root)).await;
            let page = page.unwrap_or_else(|e| format!("cannot render the page: {e}"));
            let mut response = Reply::Whole { body: Full::from(page) }.of("text/html; charset=utf-8");
            let policy = HeaderValue::from_str(page::policy()).expect("digests are ASCII");
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
            named(app.names.page, response)
        }
        Route::File => {
            let found = app.files.get(request.method(), request.uri(), request.headers()).await;
            named(app.names.files, found.map(|body| Reply::File { body }))
        }
        // Unlike the tokens, these events have no end.
        Route::Done(response) if request.uri().path() == "/events" => {
            return Ok(until_drain(response).map(Either::Right).map(Either::Right));
        }
        Route::Done(response) => response,
    };
    Ok(response.map(Either::Left))
}

fn named<B>(name: Name, mut response: Response<B>) -> Response<B> {
    response.extensions_mut().insert(name);
    response
}
