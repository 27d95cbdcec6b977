//! The rival: tokio, hyper, hyper-util, tower-http and axum alone, with `TCP_NODELAY`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

mod proxy;

use axum::response::sse::{self, Sse};
use futures_util::{TryStreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::io::StreamReader;
use tower::ServiceExt;
use tower_http::services::fs::{ServeDir, ServeFileSystemResponseBody};

use super::paced::Paced;
use super::{announce, listener, pem, tick, upload_name};
use crate::common::{Reply, Route, cli, route};
use crate::options::ServeOptions;

pub(super) fn serve(options: &ServeOptions) -> io::Result<()> {
    cli::runtime(options.workers).map_err(io::Error::other)?.block_on(async {
        let listener = TcpListener::from_std(listener()?)?;
        announce(listener.local_addr()?)?;
        match (options.relay, options.proxy, options.hz) {
            (Some(to), ..) => tokio::spawn(relay(listener, to)).await?,
            (None, Some(to), _) => tokio::spawn(proxy::serve(listener, to, options.trust.clone())).await?,
            (None, None, Some(hz)) => tokio::spawn(events(listener, hz)).await?,
            (None, None, None) => tokio::spawn(http(listener, App::new(options), acceptor(options)?)).await?,
        }
    })
}

fn acceptor(options: &ServeOptions) -> io::Result<Option<TlsAcceptor>> {
    let Some(dir) = &options.tls else { return Ok(None) };
    let [cert, key] = pem(dir)?;
    let certs = CertificateDer::pem_slice_iter(&cert).collect::<Result<_, _>>().map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(io::Error::other)?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(certs, key);
    let mut config = config.map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

struct App {
    files: ServeDir,
    uploads: PathBuf,
}

impl App {
    fn new(options: &ServeOptions) -> Arc<Self> {
        Arc::new(Self { files: ServeDir::new(&options.root), uploads: options.uploads.clone() })
    }
}

/// Accepts a connection with `TCP_NODELAY`. Retries when descriptors have run out.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if stream.set_nodelay(true).is_ok() => return stream,
            // The peer is already gone.
            Ok(_) => {}
            Err(e) => {
                eprintln!("accept: {e}; trying again");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn http(listener: TcpListener, app: Arc<App>, acceptor: Option<TlsAcceptor>) -> io::Result<()> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Without a timer hyper has no header timeout.
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    loop {
        let stream = accept(&listener).await;
        let (builder, app, acceptor) = (builder.clone(), app.clone(), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => match acceptor.accept(stream).await {
                    Ok(stream) => connection(builder, stream, app).await,
                    Err(e) => eprintln!("TLS: {e}"),
                },
                None => connection(builder, stream, app).await,
            }
        });
    }
}

async fn connection<S>(builder: auto::Builder<TokioExecutor>, stream: S, app: Arc<App>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(request, app.clone()));
    // hyper reports a client that disconnects as an error.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

type Body = Either<Reply<ServeFileSystemResponseBody>, Either<Full<bytes::Bytes>, Paced>>;

async fn answer(mut request: Request<Incoming>, app: Arc<App>) -> Result<Response<Body>, Infallible> {
    if let Some(response) = Paced::answer(request.uri()) {
        return Ok(response.map(|body| Either::Right(Either::Right(body))));
    }
    if let Some(name) = upload_name(request.uri().path()) {
        let path = app.uploads.join(name);
        let (status, text) = match save(path, request.into_body()).await {
            Ok(len) => (StatusCode::CREATED, len.to_string()),
            Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        };
        let mut response = Response::new(Either::Right(Either::Left(Full::from(text))));
        *response.status_mut() = status;
        return Ok(response);
    }
    let response = match route(&request) {
        Route::File => {
            // ServeDir treats the whole path as relative to its directory.
            let below = request.uri().path().strip_prefix("/f").and_then(|path| path.parse().ok());
            *request.uri_mut() = below.unwrap_or_default();
            app.files.clone().oneshot(request).await?.map(|body| Reply::File { body })
        }
        Route::Index => Reply::Whole { body: Full::from("stock\n") }.of("text/plain; charset=utf-8"),
        Route::Done(response) => response,
    };
    Ok(response.map(Either::Left))
}

/// Saves as millstream does: under another name first, which then replaces the old file, without a sync.
async fn save(path: PathBuf, body: Incoming) -> io::Result<u64> {
    let beside = path.with_extension("new");
    let mut file = tokio::fs::File::create(&beside).await?;
    let mut reader = StreamReader::new(body.into_data_stream().map_err(io::Error::other));
    let len = tokio::io::copy(&mut reader, &mut file).await?;
    file.flush().await?;
    tokio::fs::rename(beside, path).await?;
    Ok(len)
}

async fn events(listener: TcpListener, hz: u32) -> io::Result<()> {
    let (sender, _) = broadcast::channel::<String>(1000);
    let events = sender.clone();
    tokio::spawn(tick(hz, move |data| drop(events.send(data))));
    let answer = move || {
        let events = stream::unfold(sender.subscribe(), async |mut receiver| {
            loop {
                match receiver.recv().await {
                    Ok(data) => return Some((Ok::<_, Infallible>(sse::Event::default().data(data)), receiver)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        async { Sse::new(events) }
    };
    let app = axum::Router::new().route("/events", axum::routing::get(answer));
    use axum::serve::ListenerExt;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, app).await
}

async fn relay(listener: TcpListener, to: SocketAddr) -> io::Result<()> {
    loop {
        let mut client = accept(&listener).await;
        tokio::spawn(async move {
            match TcpStream::connect(to).await {
                Ok(mut upstream) => {
                    let _ = upstream.set_nodelay(true);
                    // The load closes its connections at the end of a round, which one of both directions reports.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
                }
                Err(e) => eprintln!("{to}: {e}"),
            }
        });
    }
}
