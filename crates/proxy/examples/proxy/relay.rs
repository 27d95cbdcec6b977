//! Copies bytes between two sockets without interpreting them.

use std::fmt;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use millstream::copy::copy_bidirectional;
use millstream::net::{Accept, Connector, UnixStream};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::report::report;

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Connects each connection of `listener` to `to` and copies both ways until both directions have ended, each in a task
/// of `connections`. An end is forwarded as an end. An error is forwarded as a reset, where the socket supports it, so
/// that a truncated stream does not look complete.
pub(crate) async fn relay<L: Accept<Stream: AsFd>>(
    listener: L,
    connector: Connector,
    to: Target,
    connections: &mut JoinSet<()>,
) -> std::io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let (connector, to) = (connector.clone(), to.clone());
        connections.spawn(async move {
            match &to {
                Target::Tcp(host, port) => match connector.connect_to(host, *port).await {
                    Ok(upstream) => join(client, upstream).await,
                    Err(e) => {
                        eprintln!("{}", report(&e));
                        reset_when_dropped(&client);
                    }
                },
                Target::Unix(path) => match UnixStream::connect(path).await {
                    Ok(upstream) => join(client, upstream).await,
                    Err(e) => {
                        eprintln!("cannot connect to {}: {e}", path.display());
                        reset_when_dropped(&client);
                    }
                },
            }
        });
    }
}

async fn join<A, B>(mut client: A, mut upstream: B)
where
    A: AsyncRead + AsyncWrite + Unpin + 'static,
    B: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if let Err(e) = copy_bidirectional(&mut client, &mut upstream).await {
        eprintln!("{}", report(&e));
    }
}

fn reset_when_dropped(socket: &impl AsFd) {
    // Fails only if the connection is already gone.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
