//! tokio 1.54, current-thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use ::tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional, copy_bidirectional_with_sizes};
use ::tokio::net::TcpStream;
use ::tokio::runtime::Runtime;
use ::tokio::{net, spawn};

use super::{RELAY_BUFFER, ROOM};

pub(super) fn runtime() -> io::Result<Runtime> {
    ::tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// With a roomy read buffer: one of the length of a message costs another `recv` that is told to wait.
pub(super) fn echo(listener: TcpListener) -> io::Result<()> {
    runtime()?.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = net::TcpListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            spawn(async move {
                let mut buffer = vec![0; ROOM];
                loop {
                    let n = stream.read(&mut buffer).await?;
                    if n == 0 {
                        return io::Result::Ok(());
                    }
                    stream.write_all(&buffer[..n]).await?;
                }
            });
        }
    })
}

/// The best that `tokio::io` has.
pub(super) fn relay(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    relay_by(listener, sink, async |mut one, mut other| {
        copy_bidirectional_with_sizes(&mut one, &mut other, RELAY_BUFFER, RELAY_BUFFER).await
    })
}

/// The loop of most proxies.
pub(super) fn relay_by_default(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    relay_by(listener, sink, async |mut one, mut other| copy_bidirectional(&mut one, &mut other).await)
}

fn relay_by<F>(listener: TcpListener, sink: SocketAddr, copy: F) -> io::Result<()>
where
    F: AsyncFn(TcpStream, TcpStream) -> io::Result<(u64, u64)>,
{
    runtime()?.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = net::TcpListener::from_std(listener)?;
        loop {
            let (one, _) = listener.accept().await?;
            let other = TcpStream::connect(sink).await?;
            other.set_nodelay(true)?;
            copy(one, other).await?;
        }
    })
}

/// One job on the blocking pool, `copy_file_range` in it.
pub(super) fn file(from: &Path, to: &Path) -> io::Result<()> {
    runtime()?.block_on(async { ::tokio::fs::copy(from, to).await.map(drop) })
}
