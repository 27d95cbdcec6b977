//! One connection of hyper's client, HTTP/1.1 or HTTP/2. Errors name the URL and a remedy.

use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use measuring::client::{Sender, Target};
use measuring::report::report;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Requested URL and protocol, and where they are asked for.
#[derive(Debug)]
pub(crate) struct Server {
    target: Target,
    /// `HOST:PORT` for `connect`.
    address: String,
    h2: bool,
}

impl Server {
    pub(crate) fn new(url: &Uri, h2: bool) -> Result<Self, String> {
        let authority = match (url.scheme_str(), url.authority()) {
            (Some("http"), Some(authority)) => authority,
            _ => return Err(format!("{url}: give a whole URL that starts with http://, TLS is not supported")),
        };
        let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        Ok(Self { target: Target::new(url.clone())?, address, h2 })
    }

    pub(crate) async fn connect(&self) -> Result<Sender, String> {
        let help = "is the server running there?";
        let stream = match timeout(Duration::from_secs(5), TcpStream::connect(&self.address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) if e.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
                return Err(format!("{}: {e}; raise the limit with ulimit -n", self.target.url));
            }
            Ok(Err(e)) => return Err(format!("{}: {e}; {help}", self.target.url)),
            Err(_) => return Err(format!("{}: no connection within 5 s; {help}", self.target.url)),
        };
        stream.set_nodelay(true).map_err(|e| self.problem(&e))?;
        Sender::start(stream, self.h2).await.map_err(|e| self.problem(&e))
    }

    /// Sends a request. Returns the response at the end of its head.
    pub(crate) async fn get(&self, sender: &mut Sender) -> Result<Answer, String> {
        let response = sender.get(&self.target).await.map_err(|e| self.problem(&e))?;
        match response.status() {
            StatusCode::OK => Ok(Answer(response.into_body())),
            status => Err(format!("{}: answered {status}; give an existing URL", self.target.url)),
        }
    }

    pub(crate) fn problem(&self, e: &(dyn std::error::Error + 'static)) -> String {
        let help = if self.h2 { "does the server speak HTTP/2 without TLS?" } else { "is it still running?" };
        format!("{}: {}; {help}", self.target.url, report(e))
    }
}

/// A response whose body is still arriving.
#[derive(Debug)]
pub(crate) struct Answer(Incoming);

impl Answer {
    /// Returns the next bytes, or `None` at the end. Skips trailers.
    pub(crate) async fn next(&mut self, server: &Server) -> Result<Option<Bytes>, String> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(data) = frame.map_err(|e| server.problem(&e))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}
