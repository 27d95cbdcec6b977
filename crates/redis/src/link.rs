//! Connections to Redis, and fencing of broken ones.

use std::fmt;
use std::io;
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisResult, cmd, pipe,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::allowance::{Allowance, Metered};
use super::error::RedisError;

pub(crate) struct Server {
    client: Client,
    /// Host and port, or a path, without credentials.
    pub(crate) address: String,
    pub(crate) timeout: Duration,
}

/// Omits the client, which may contain a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        Self::speaking(ProtocolVersion::RESP2, url, timeout)
    }

    /// Returns a server whose connections may get notifications, see [`connect_pushing`](Self::connect_pushing).
    pub(crate) fn pushing(url: &str, timeout: Duration) -> Result<Self, RedisError> {
        Self::speaking(ProtocolVersion::RESP3, url, timeout)
    }

    fn speaking(protocol: ProtocolVersion, url: &str, timeout: Duration) -> Result<Self, RedisError> {
        let tls = url.starts_with("rediss://") || url.starts_with("valkeys://");
        // Errors of the crate may quote the URL.
        let reason = match tls {
            true => {
                "TLS (rediss://) needs a feature of the redis crate that the service must enable: \
                 redis = { version = \"1\", default-features = false, features = [\"tokio-rustls-comp\"] }, and a crypto \
                 provider of rustls"
            }
            false => "the URL is not a Redis URL",
        };
        let info = url.into_connection_info().map_err(|_| RedisError::Url { reason })?;
        if !info.addr().is_supported() {
            return Err(RedisError::Url { reason });
        }
        let address = match info.addr() {
            ConnectionAddr::Unix(path) => path.display().to_string(),
            addr => addr.to_string(),
        };
        // A batch is sent by one write; Nagle's algorithm would only delay it.
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let settings = info.redis_settings().clone().set_protocol(protocol);
        let info = info.set_tcp_settings(tcp).set_redis_settings(settings);
        let client = Client::open(info).map_err(|_| RedisError::Url { reason })?;
        Ok(Self { client, address, timeout })
    }

    /// Connects. Replies of this connection may take up to `blocking` longer than the timeout.
    pub(crate) async fn connect(&self, blocking: Duration) -> RedisResult<RedisLink> {
        self.connect_with(self.config(blocking)).await
    }

    /// Connects for many callers at a time. Notifications are passed to `heard`. Replies are not metered.
    pub(crate) async fn connect_pushing(&self, heard: impl AsyncPushSender) -> RedisResult<RedisLink> {
        let link = self.connect_with(self.config(Duration::ZERO).set_push_sender(heard)).await?;
        link.allowance.set(usize::MAX / 2);
        Ok(link)
    }

    fn config(&self, blocking: Duration) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout.saturating_add(blocking)))
    }

    async fn connect_with(&self, config: AsyncConnectionConfig) -> RedisResult<RedisLink> {
        let allowance = Allowance::new();
        let explain = |e| allowance.explain(e);
        let opened = timeout(self.timeout, self.open(config, &allowance)).await;
        let opened = opened.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let (mut connection, driver) = opened.map_err(explain)?;
        let mut hello = pipe();
        hello.cmd("CLIENT").arg("ID").cmd("INFO").arg("server");
        let (client, info): (i64, String) = hello.query_async(&mut connection).await.map_err(explain)?;
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().to_owned();
        Ok(RedisLink { connection, peer: ConnectionId { run, client }, allowance, _driver: driver })
    }

    async fn open(&self, config: AsyncConnectionConfig, allowance: &Allowance) -> RedisResult<Opened> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((&**host, *port)).await?;
                stream.set_nodelay(true)?;
                self.drive(Metered::new(stream, allowance.clone()), config).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                self.drive(Metered::new(stream, allowance.clone()), config).await
            }
            // The TLS stream of the crate is private, so its replies cannot be metered.
            _ => Ok((self.client.get_multiplexed_async_connection_with_config(&config).await?, None)),
        }
    }

    async fn drive<S>(&self, stream: S, config: AsyncConnectionConfig) -> RedisResult<Opened>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = self.client.get_connection_info().redis_settings();
        let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
        Ok((connection, Some(ConnectionTask(tokio::spawn(driver).abort_handle()))))
    }
}

type Opened = (MultiplexedConnection, Option<ConnectionTask>);

/// The task that reads and writes for a connection. It ends with the connection.
#[derive(Debug)]
struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Identity of a connection at the server: its number in one run of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    run: String,
    client: i64,
}

pub(crate) struct RedisLink {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) peer: ConnectionId,
    pub(crate) allowance: Allowance,
    _driver: Option<ConnectionTask>,
}

impl fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLink").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl RedisLink {
    /// Ensures that Redis executes no more commands of the connection `old`, even buffered ones.
    ///
    /// Redis reads a connection after its peer has closed it, so an abandoned append may be executed later. Closing the
    /// connection at the server discards the unread bytes.
    pub(crate) async fn fence(&mut self, old: &ConnectionId) -> RedisResult<()> {
        // Another run of the server has no connections of the earlier run, and reuses their numbers.
        if old.run != self.peer.run {
            return Ok(());
        }
        cmd("CLIENT").arg("KILL").arg("ID").arg(old.client).query_async::<i64>(&mut self.connection).await.map(drop)
    }

    /// Checks that this user may [`fence`](Self::fence), before it is needed.
    pub(crate) async fn may_fence(&mut self) -> RedisResult<()> {
        cmd("CLIENT").arg("KILL").arg("ID").arg(i64::MAX).query_async::<i64>(&mut self.connection).await.map(drop)
    }
}
