//! One connection of hyper's client, HTTP/1.1 or HTTP/2, on any stream.

use std::error::Error;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

/// The request.
#[derive(Clone, Debug)]
pub struct Target {
    /// The whole URL, as HTTP/2 sends it.
    pub url: Uri,
    /// The path and the query, as HTTP/1.1 sends them.
    path: Uri,
    host: HeaderValue,
}

impl Target {
    /// Takes a URL with scheme and authority.
    pub fn new(url: Uri) -> Result<Self, String> {
        let authority = url.authority().ok_or_else(|| format!("{url} names no host"))?;
        let host = HeaderValue::try_from(authority.as_str()).map_err(|e| format!("{url}: {e}"))?;
        let path = url.path_and_query().map_or_else(|| Uri::from_static("/"), |path| path.clone().into());
        Ok(Self { url, path, host })
    }
}

/// The sending half of a connection; a task of hyper drives the stream. `B` is the body of requests.
#[derive(Debug)]
pub enum Sender<B = Empty<Bytes>> {
    One(http1::SendRequest<B>),
    Two(http2::SendRequest<B>),
}

impl<B> Sender<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Default + Send + Unpin + 'static,
{
    /// Starts HTTP on a connected stream. The task that drives it ends with the connection; requests report its errors,
    /// too.
    pub async fn start<S>(stream: S, h2: bool) -> hyper::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        if h2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            // Windows so large that the server never waits for them.
            builder.initial_stream_window_size(2 << 20).initial_connection_window_size(16 << 20);
            let (sender, connection) = builder.handshake(io).await?;
            tokio::spawn(connection);
            Ok(Self::Two(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            Ok(Self::One(sender))
        }
    }

    /// Returns another sender of the same connection, with HTTP/2 only.
    pub fn another(&self) -> Option<Self> {
        match self {
            Self::One(_) => None,
            Self::Two(sender) => Some(Self::Two(sender.clone())),
        }
    }

    pub fn is_closed(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_closed(),
            Self::Two(sender) => sender.is_closed(),
        }
    }

    /// Waits until the connection takes a request.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::One(sender) => sender.ready().await,
            Self::Two(sender) => sender.ready().await,
        }
    }

    /// Sends a `GET` and returns the response at the end of its head.
    pub async fn get(&mut self, target: &Target) -> hyper::Result<Response<Incoming>> {
        self.send(Method::GET, target, B::default()).await
    }

    /// Sends a request and returns the response at the end of its head.
    pub async fn send(&mut self, method: Method, target: &Target, body: B) -> hyper::Result<Response<Incoming>> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        match self {
            Self::One(sender) => {
                *request.uri_mut() = target.path.clone();
                request.headers_mut().insert(HOST, target.host.clone());
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                *request.uri_mut() = target.url.clone();
                sender.send_request(request).await
            }
        }
    }
}
