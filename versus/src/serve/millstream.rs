//! The server with millstream.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use millstream::body::Save;
use millstream::copy::copy_bidirectional;
use millstream::files::{Files, FilesBody};
use millstream::fs::Durability;
use millstream::net::{Connector, TcpListener};
use millstream::runtime::Cores;
use millstream::server::tls::Tls;
use millstream::server::{Limits, RequestBody};
use millstream::sse::{Event, EventBody, Hub};
use millstream_proxy::Proxy;

use super::paced::Paced;
use super::settings::Settings;
use super::{announce, listener, pem, tick, trusting, upload_name};
use crate::common::{Reply, Route, cli, route};
use crate::options::ServeOptions;

pub(super) fn serve(options: &ServeOptions, settings: &Settings) -> io::Result<()> {
    if settings.per_core {
        return per_core(options, settings);
    }
    cli::runtime(options.workers).map_err(io::Error::other)?.block_on(async {
        let listener = settings.apply(TcpListener::builder()).from_std(listener()?)?;
        announce(listener.local_addr()?)?;
        // In a task, as servers run: the future of `block_on` is polled by the thread that has built the runtime.
        match (options.relay, options.proxy) {
            (Some(to), _) => tokio::spawn(relay(listener, to)).await?,
            (None, Some(to)) => tokio::spawn(proxy(listener, upstream(to, options)?)).await?,
            (None, None) => tokio::spawn(http(listener, App::new(options)?, tls(options)?)).await?,
        }
    })
}

/// Serves with a runtime and a listener for each thread.
fn per_core(options: &ServeOptions, settings: &Settings) -> io::Result<()> {
    let app = App::new(options)?;
    let tls = tls(options)?;
    let cores = Cores::new(options.workers.get())?;
    let listeners = settings.apply(TcpListener::builder()).bind_each("127.0.0.1:0", cores.count())?;
    announce(listeners.local_addr())?;
    let served = cores.run(move |_| {
        let (listener, app, tls) = (listeners.take(), app.clone(), tls.clone());
        async move { http(listener?, app, tls).await }
    });
    served.wait().map(drop)
}

fn tls(options: &ServeOptions) -> io::Result<Option<Tls>> {
    let Some(dir) = &options.tls else { return Ok(None) };
    let [cert, key] = pem(dir)?;
    Tls::from_pem(cert, key).map(Some).map_err(io::Error::other)
}

struct App {
    files: Files,
    uploads: std::path::PathBuf,
    hz: Option<u32>,
}

impl App {
    fn new(options: &ServeOptions) -> io::Result<Arc<Self>> {
        let files = Files::builder(&options.root).mounted_at("/f").build()?;
        Ok(Arc::new(Self { files, uploads: options.uploads.clone(), hz: options.hz }))
    }
}

async fn http(listener: TcpListener, app: Arc<App>, tls: Option<Tls>) -> io::Result<()> {
    let limits = Limits::default().body(u64::MAX).connections(100_000);
    let Some(hz) = app.hz else {
        let service = tower::service_fn(move |request| answer(request, app.clone()));
        let server = millstream::server::serve(listener, service).limits(limits);
        return match tls {
            Some(tls) => server.tls(tls).await,
            None => server.await,
        };
    };
    let hub = Hub::builder().subscribers(100_000).build();
    let sender = hub.clone();
    tokio::spawn(tick(hz, move |data| drop(sender.send(Event::new().data(data)))));
    let service = tower::service_fn(move |request| {
        let answer: Response<EventBody> = hub.subscribe(&request);
        async { Ok::<_, Infallible>(answer) }
    });
    millstream::server::serve(listener, service).limits(limits).await
}

type Body = Either<Reply<FilesBody>, Either<Full<bytes::Bytes>, Paced>>;

async fn answer(request: Request<RequestBody>, app: Arc<App>) -> Result<Response<Body>, Infallible> {
    if let Some(response) = Paced::answer(request.uri()) {
        return Ok(response.map(|body| Either::Right(Either::Right(body))));
    }
    if let Some(name) = upload_name(request.uri().path()) {
        let path = app.uploads.join(name);
        let saved = Save::new(path).durability(Durability::None).run(request.into_body()).await;
        let (status, text) = match saved {
            Ok(saved) => (StatusCode::CREATED, saved.len.to_string()),
            Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        };
        let mut response = Response::new(Either::Right(Either::Left(Full::from(text))));
        *response.status_mut() = status;
        return Ok(response);
    }
    let response = match route(&request) {
        Route::File => {
            let found = app.files.get(request.method(), request.uri(), request.headers()).await;
            found.map(|body| Reply::File { body })
        }
        Route::Index => Reply::Whole { body: Full::from("millstream\n") }.of("text/plain; charset=utf-8"),
        Route::Done(response) => response,
    };
    Ok(response.map(Either::Left))
}

fn upstream(to: std::net::SocketAddr, options: &ServeOptions) -> io::Result<Proxy> {
    let proxy = match &options.trust {
        Some(dir) => Proxy::builder(format!("https://{to}").parse()?).upstream_tls(Arc::new(trusting(dir)?)).build(),
        None => Proxy::new(to.to_string().parse()?),
    };
    Ok(proxy?)
}

async fn proxy(listener: TcpListener, proxy: Proxy) -> io::Result<()> {
    let limits = Limits::default().streaming_requests(|_| true).connections(100_000);
    millstream::server::serve(listener, proxy).limits(limits).await
}

async fn relay(listener: TcpListener, to: std::net::SocketAddr) -> io::Result<()> {
    let connector = Connector::new();
    loop {
        let (mut client, _) = listener.accept().await?;
        let connector = connector.clone();
        tokio::spawn(async move {
            match connector.connect_to(&to.ip().to_string(), to.port()).await {
                // The load closes its connections at the end of a round, which one of both directions reports.
                Ok(mut upstream) => drop(copy_bidirectional(&mut client, &mut upstream).await),
                Err(e) => eprintln!("{e}"),
            }
        });
    }
}
