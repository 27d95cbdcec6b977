//! The rival as a proxy: hyper-util's client, with connections of tokio or of tokio-rustls.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::accept;
use crate::serve::trusting;

/// Passes requests on: over TLS, if `trust` has the certificate of the other server.
pub(super) async fn serve(listener: TcpListener, to: SocketAddr, trust: Option<PathBuf>) -> io::Result<()> {
    match trust {
        None => {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            pass(listener, format!("http://{to}"), connector).await
        }
        Some(dir) => {
            let connector = TlsConnector::from(Arc::new(trusting(&dir)?));
            let connector = tower::service_fn(move |_: Uri| Box::pin(connect(to, connector.clone())));
            pass(listener, format!("https://{to}"), connector).await
        }
    }
}

async fn connect(to: SocketAddr, connector: TlsConnector) -> io::Result<TokioIo<Secured>> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(Secured(connector.connect(ServerName::from(to.ip()), stream).await?)))
}

async fn pass<C>(listener: TcpListener, origin: String, connector: C) -> io::Result<()>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let client = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector);
    let origin: Arc<str> = origin.into();
    loop {
        let stream = accept(&listener).await;
        let (client, origin) = (client.clone(), origin.clone());
        tokio::spawn(async move {
            let service = service_fn(move |mut request: Request<Incoming>| {
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                *request.uri_mut() = format!("{origin}{path}").parse().unwrap_or_default();
                client.request(request)
            });
            // hyper reports a client that disconnects as an error.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A connection over TLS. hyper-util knows those of tokio only.
struct Secured(TlsStream<TcpStream>);

impl Connection for Secured {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
