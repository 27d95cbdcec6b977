//! millstream, on tokio's current-thread runtime. `MILLSTREAM_IO` says which way it goes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use ::millstream::copy;
use ::millstream::net::{self, TcpStream};
use ::tokio::fs::File;
use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::spawn;

use super::ROOM;
use super::tokio::runtime;

pub(super) fn echo(listener: TcpListener) -> io::Result<()> {
    runtime()?.block_on(async {
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

pub(super) fn relay(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    runtime()?.block_on(async {
        let listener = net::TcpListener::from_std(listener)?;
        loop {
            let (mut one, _) = listener.accept().await?;
            let mut other = TcpStream::connect(sink).await?;
            copy::copy_bidirectional(&mut one, &mut other).await.map_err(io::Error::other)?;
        }
    })
}

pub(super) fn file(from: &Path, to: &Path) -> io::Result<()> {
    runtime()?.block_on(async {
        let (mut from, mut to) = (File::open(from).await?, File::create(to).await?);
        copy::copy(&mut from, &mut to).await.map(drop).map_err(io::Error::other)
    })
}
