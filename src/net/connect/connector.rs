//! Connecting, as a service: upstream connections with the streams of this crate.

use std::fmt;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use tower_service::Service;

use super::connect_error::{ConnectError, Why};
use super::race::{Tried, in_turns, race};
use crate::net::options::{Options, stream_options};
use crate::net::stream::TcpStream;
use crate::sys::fd::AsFd;
use crate::sys::socket;

/// Silence after which the kernel probes the peer, as on accepted connections.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Default time limit, including the name lookup.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Connects [`TcpStream`]s to the hosts of URIs.
///
/// It is a tower service, as required by hyper-util's client and tonic's `connect_with_connector`. With the feature
/// `client` its streams implement the traits that `hyper_util::client::legacy::Client` requires, so a proxy has the
/// same stream on both sides:
///
/// ```
/// # #[cfg(feature = "client")] {
/// use bytes::Bytes;
/// use http_body_util::Empty;
/// use hyper_util::{client::legacy::Client, rt::TokioExecutor};
/// use millstream::net::Connector;
///
/// let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build(Connector::new());
/// # drop(client);
/// # }
/// ```
///
/// # Attempts
///
/// The name is resolved on the blocking pool (`getaddrinfo`). Addresses are tried in the resolver's order, alternating
/// between the families. The next attempt starts after 250 ms, or at once if one fails. The first connection wins, and
/// the other attempts are dropped. The total time is limited to [5 s](Self::timeout), which needs the runtime's timer.
///
/// The kernel probes a peer that is silent for 60 s (`SO_KEEPALIVE`). A vanished peer is detected after two minutes, as
/// on [accepted](crate::net::TcpListenerBuilder::keep_alive) connections.
///
/// # Errors
///
/// A [`ConnectError`] names host, port, every address tried with its error, and the remedy.
///
/// # Cancel safety
///
/// Dropping the future closes unfinished connections.
#[derive(Clone, Debug)]
pub struct Connector {
    timeout: Duration,
    local: Option<IpAddr>,
    only_http: bool,
    options: Options,
}

stream_options!(Connector);

impl Connector {
    /// Creates a connector with the defaults.
    pub fn new() -> Self {
        Self { timeout: TIMEOUT, local: None, only_http: true, options: Options::default() }
    }

    /// Sets the time limit of a connection, including the name lookup and all addresses; 5 s by default.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Sets the local address; addresses of the other family are not tried. The port is chosen at connect time
    /// (`IP_BIND_ADDRESS_NO_PORT`, [ip(7)](https://man7.org/linux/man-pages/man7/ip.7.html)), so that connections to
    /// different destinations can share one.
    #[must_use]
    pub fn local(mut self, addr: IpAddr) -> Self {
        self.local = Some(addr);
        self
    }

    /// Sets whether a scheme other than `http` is an error; `true` by default. A TLS connector around this one, such as
    /// that of hyper-rustls, passes `https` URIs on and needs `false`.
    #[must_use]
    pub fn enforce_http(mut self, on: bool) -> Self {
        self.only_http = on;
        self
    }

    /// Connects to a port of a host: a name or an address, with or without the brackets of IPv6.
    ///
    /// # Errors
    ///
    /// See [`Connector`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    pub async fn connect_to(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let failed = |why| ConnectError::new(format!("{host}:{port}"), why);
        self.options.check().map_err(|e| failed(Why::Option(e)))?;
        let mut tried = Tried::new();
        let connecting = async {
            let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let addrs = tokio::net::lookup_host((name, port)).await.map_err(Why::Resolve)?;
            let addrs = in_turns(addrs.filter(|addr| self.local.is_none_or(|local| local.is_ipv4() == addr.is_ipv4())));
            if addrs.is_empty() {
                return Err(Why::Family);
            }
            let local = self.local;
            Ok(race(addrs, &mut tried, |addr| connect(addr, local)).await)
        };
        let connected = match tokio::time::timeout(self.timeout, connecting).await {
            Ok(done) => done.map_err(failed)?,
            Err(_) => return Err(failed(Why::Timeout(self.timeout, tried))),
        };
        let Some((addr, socket)) = connected else { return Err(failed(Why::Refused(tried))) };
        let stream = socket.into_std().and_then(|socket| TcpStream::with(socket.into(), self.options.clone()));
        stream.map_err(|e| failed(Why::Refused(vec![(addr, Some(e))])))
    }

    fn target(&self, uri: &Uri) -> Result<(String, u16), ConnectError> {
        let failed = |what| ConnectError::new(uri.to_string(), Why::Uri(what));
        let encrypted = uri.scheme() == Some(&Scheme::HTTPS);
        if self.only_http && uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP) {
            return Err(failed(match encrypted {
                true => {
                    "https needs TLS, which is not done here: wrap this connector in one that does, such as hyper-rustls's \
                     HttpsConnector, and call enforce_http(false) on this one"
                }
                false => "the scheme is not http",
            }));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| failed("the URI has no host"))?;
        Ok((host.to_owned(), uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 })))
    }
}

async fn connect(addr: SocketAddr, local: Option<IpAddr>) -> io::Result<tokio::net::TcpStream> {
    let socket = match addr {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_nodelay(true)?;
    socket::keep_alive(socket.as_fd(), KEEP_ALIVE)?;
    if let Some(local) = local {
        socket::bind_without_port(&socket);
        socket.bind((local, 0).into())?;
    }
    socket.connect(addr).await
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

impl Service<Uri> for Connector {
    type Response = TcpStream;
    type Error = ConnectError;
    type Future = Connecting<TcpStream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting<TcpStream> {
        Connecting(match self.target(&uri) {
            Ok((host, port)) => {
                let connector = self.clone();
                Box::pin(async move { connector.connect_to(&host, port).await })
            }
            Err(e) => Box::pin(ready(Err(e))),
        })
    }
}

/// Future of [`Connector`] and of [`UnixConnector`](crate::net::UnixConnector).
#[must_use = "futures do nothing unless polled"]
pub struct Connecting<S>(pub(super) Pin<Box<dyn Future<Output = Result<S, ConnectError>> + Send>>);

impl<S> Future for Connecting<S> {
    type Output = Result<S, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<S> fmt::Debug for Connecting<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").finish_non_exhaustive()
    }
}

#[cfg(feature = "client")]
impl hyper_util::client::legacy::connect::Connection for TcpStream {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        hyper_util::client::legacy::connect::Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;

    #[tokio::test]
    async fn the_kernel_probes_the_peer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = Connector::new().connect_to("127.0.0.1", port).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEP_ALIVE);
    }
}
