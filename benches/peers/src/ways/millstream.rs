//! millstream, on tokio's current-thread runtime. `MILLSTREAM_IO` says which way it goes.

use std::io;
use std::net::TcpListener;

use ::millstream::net::{self, TcpListenerBuilder};
use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
use ::tokio::spawn;

use super::ROOM;
use super::tokio::runtime;

pub(super) fn echo(listener: TcpListener) -> io::Result<()> {
    echo_by(listener, net::TcpListener::builder())
}

fn echo_by(listener: TcpListener, builder: TcpListenerBuilder) -> io::Result<()> {
    runtime()?.block_on(async {
        let listener = builder.from_std(listener)?;
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
