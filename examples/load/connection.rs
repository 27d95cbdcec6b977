//! One connection of hyper's client, HTTP/1.1 or HTTP/2. Errors name the URL and a remedy.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Requested URL and protocol.
#[derive(Debug)]
pub(crate) struct Target {
    url: Uri,
    /// `HOST:PORT` for `connect`.
    address: String,
    host: HeaderValue,
    h2: bool,
}

impl Target {
    pub(crate) fn new(url: &Uri, h2: bool) -> Result<Self, String> {
        let authority = match (url.scheme_str(), url.authority()) {
            (Some("http"), Some(authority)) => authority,
            _ => return Err(format!("{url}: give a whole URL that starts with http://, TLS is not supported")),
        };
        let host = HeaderValue::try_from(authority.as_str()).map_err(|e| format!("{url}: {e}"))?;
        let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        Ok(Self { url: url.clone(), address, host, h2 })
    }

    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        let help = "is the server running there?";
        let stream = match timeout(Duration::from_secs(5), TcpStream::connect(&self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) if e.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
                return Err(format!("{}: {e}; raise the limit with ulimit -n", self.url));
            }
            Ok(Err(e)) => return Err(format!("{}: {e}; {help}", self.url)),
            Err(_) => return Err(format!("{}: no connection within 5 s; {help}", self.url)),
        };
        stream.set_nodelay(true).map_err(|e| self.problem(&e))?;
        let io = TokioIo::new(stream);
        // hyper's connection task ends with the connection; requests report its errors too.
        if self.h2 {
            let shake = http2::handshake(TokioExecutor::new(), io).await;
            let (sender, connection) = shake.map_err(|e| self.problem(&e))?;
            tokio::spawn(connection);
            Ok(Connection::Two(sender))
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(|e| self.problem(&e))?;
            tokio::spawn(connection);
            Ok(Connection::One(sender))
        }
    }

    fn problem(&self, e: &(dyn std::error::Error + 'static)) -> String {
        // hyper's own text names only the outermost reason.
        let reasons: Vec<String> = std::iter::successors(Some(e), |e| e.source()).map(|e| e.to_string()).collect();
        let help = if self.h2 { "does the server speak HTTP/2 without TLS?" } else { "is it still running?" };
        format!("{}: {}; {help}", self.url, reasons.join(": "))
    }
}

/// The sending half; hyper's task drives the socket.
#[derive(Debug)]
pub(crate) enum Connection {
    One(http1::SendRequest<Empty<Bytes>>),
    Two(http2::SendRequest<Empty<Bytes>>),
}

impl Connection {
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_closed(),
            Self::Two(sender) => sender.is_closed(),
        }
    }

    pub(crate) async fn ready(&mut self, target: &Target) -> Result<(), String> {
        let ready = match self {
            Self::One(sender) => sender.ready().await,
            Self::Two(sender) => sender.ready().await,
        };
        ready.map_err(|e| target.problem(&e))
    }

    pub(crate) async fn get(&mut self, target: &Target) -> Result<Answer, String> {
        let mut request = Request::new(Empty::new());
        let response = match self {
            Self::One(sender) => {
                *request.uri_mut() =
                    target.url.path_and_query().map_or_else(|| Uri::from_static("/"), |path| path.clone().into());
                request.headers_mut().insert(HOST, target.host.clone());
                sender.send_request(request).await
            }
            Self::Two(sender) => {
                *request.uri_mut() = target.url.clone();
                sender.send_request(request).await
            }
        };
        let response = response.map_err(|e| target.problem(&e))?;
        match response.status() {
            StatusCode::OK => Ok(Answer(response.into_body())),
            status => Err(format!("{}: answered {status}; give an existing URL", target.url)),
        }
    }
}

/// A response whose body is still arriving.
#[derive(Debug)]
pub(crate) struct Answer(Incoming);

impl Answer {
    /// Returns the next bytes, or `None` at the end. Skips trailers.
    pub(crate) async fn next(&mut self, target: &Target) -> Result<Option<Bytes>, String> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(data) = frame.map_err(|e| target.problem(&e))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}
