//! Connecting to Unix sockets, as a service.

use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use tower_service::Service;

use super::connect_error::{ConnectError, Why};
use super::connector::{Connecting, TIMEOUT};
use crate::net::options::{Options, stream_options};
use crate::net::stream::UnixStream;
use crate::sys::errno::Errno;

/// Interval between attempts at a Unix listener whose queue is full.
const PAUSE: Duration = Duration::from_millis(10);

/// Connects [`UnixStream`]s to one Unix socket, for all URIs.
///
/// If the listener's queue is full, retries every 10 ms: Unix sockets cannot wait for room. Errors name path and
/// remedy.
#[derive(Clone, Debug)]
pub struct UnixConnector {
    path: PathBuf,
    timeout: Duration,
    options: Options,
}

stream_options!(UnixConnector);

impl UnixConnector {
    /// Creates a connector to the socket at `path`, with the defaults of [`Connector`](super::Connector).
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), timeout: TIMEOUT, options: Options::default() }
    }

    /// Sets the time limit; 5 s by default. It applies only while the listener's queue is full.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Connects to the listener.
    ///
    /// # Errors
    ///
    /// There is no listener, or its queue is full for longer than the [limit](Self::timeout).
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves no connection.
    pub async fn connect(&self) -> Result<UnixStream, ConnectError> {
        let failed = |why| ConnectError::new(self.path.display().to_string().replace('\0', "@"), why);
        self.options.check().map_err(|e| failed(Why::Option(e)))?;
        let tries = async {
            loop {
                match UnixStream::connect_with(&self.path, self.options.clone()) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(PAUSE).await,
                    done => return done,
                }
            }
        };
        let done = tokio::time::timeout(self.timeout, tries).await;
        let done = done.unwrap_or_else(|_| Err(Errno::AGAIN.into()));
        done.map_err(|e| failed(Why::Path(e)))
    }
}

impl Service<Uri> for UnixConnector {
    type Response = UnixStream;
    type Error = ConnectError;
    type Future = Connecting<UnixStream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Connecting<UnixStream> {
        let connector = self.clone();
        Connecting(Box::pin(async move { connector.connect().await }))
    }
}

impl hyper_util::client::legacy::connect::Connection for UnixStream {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        hyper_util::client::legacy::connect::Connected::new()
    }
}
