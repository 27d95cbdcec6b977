//! compio 0.19 on io_uring.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZero;
use std::path::Path;
use std::pin::pin;

use ::compio::buf::{BufResult, IntoInner, IoBuf};
use ::compio::driver::ProactorBuilder;
use ::compio::fs::File;
use ::compio::fs::pipe::{anonymous, splice};
use ::compio::io::util::copy_bidirectional_with_sizes;
use ::compio::io::{AsyncRead, AsyncReadAt, AsyncReadMulti, AsyncWrite, AsyncWriteAtExt, AsyncWriteExt};
use ::compio::net::TcpStream;
use ::compio::runtime::{RuntimeBuilder, spawn};
use futures_util::{StreamExt, future};

use super::{FILE_BUFFER, RELAY_BUFFER, ROOM};

/// The wanted size of a pipe.
const PIPE: usize = 1 << 20;

/// Receive buffers that the kernel fills: at least one for each connection, because a receive that finds none fails.
const BUFFERS: NonZero<u16> = NonZero::new(1024).unwrap();

/// Task work runs when the thread enters the kernel anyway, instead of interrupting it; `DEFER_TASKRUN` was no cheaper.
fn run<F: Future<Output = io::Result<()>>>(work: F) -> io::Result<()> {
    let mut proactor = ProactorBuilder::new();
    proactor.capacity(1024).coop_taskrun(true).taskrun_flag(true);
    proactor.buffer_pool_size(BUFFERS).buffer_pool_buffer_len(4 << 10);
    RuntimeBuilder::new().with_proactor(proactor).build()?.block_on(work)
}

pub(super) fn echo(listener: TcpListener) -> io::Result<()> {
    run(async {
        let listener = ::compio::net::TcpListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            spawn(async move {
                let mut buffer: Vec<u8> = Vec::with_capacity(ROOM);
                loop {
                    buffer.clear();
                    let BufResult(read, filled) = stream.read(buffer).await;
                    if read? == 0 {
                        return io::Result::Ok(());
                    }
                    let written;
                    BufResult(written, buffer) = stream.write_all(filled).await;
                    written?;
                }
            })
            .detach();
        }
    })
}

/// One receive stays armed for each connection, and the kernel fills buffers of one pool, from which they are sent.
pub(super) fn echo_multishot(listener: TcpListener) -> io::Result<()> {
    run(async {
        let listener = ::compio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            spawn(async move {
                let (mut reader, mut writer) = (&stream, &stream);
                let mut received = pin!(reader.read_multi(0));
                while let Some(buffer) = received.next().await {
                    writer.write_all(buffer?).await.0?;
                }
                io::Result::Ok(())
            })
            .detach();
        }
    })
}

pub(super) fn relay(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    relay_by(listener, sink, async |one, other| {
        let (there, back) = copy_bidirectional_with_sizes(one, other, RELAY_BUFFER, RELAY_BUFFER).await;
        there.and(back)
    })
}

pub(super) fn relay_spliced(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    relay_by(listener, sink, async |one, other| {
        future::try_join(copy_spliced(&one, &other), copy_spliced(&other, &one)).await.map(|_| 0)
    })
}

fn relay_by<F>(listener: TcpListener, sink: SocketAddr, copy: F) -> io::Result<()>
where
    F: AsyncFn(TcpStream, TcpStream) -> io::Result<u64>,
{
    run(async {
        let listener = ::compio::net::TcpListener::from_std(listener)?;
        loop {
            let (one, _) = listener.accept().await?;
            let other = TcpStream::connect(sink).await?;
            other.set_nodelay(true)?;
            copy(one, other).await?;
        }
    })
}

async fn copy_spliced(from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let (out, into) = anonymous().await?;
    let room = rustix::pipe::fcntl_setpipe_size(&into, PIPE)?;
    loop {
        let mut left = splice(from, &into, room).await?;
        if left == 0 {
            return to.shutdown().await;
        }
        while left > 0 {
            left -= splice(&out, to, left).await?;
        }
    }
}

pub(super) fn file(from: &Path, to: &Path) -> io::Result<()> {
    run(async {
        let (from, mut to) = (File::open(from).await?, File::create(to).await?);
        let mut buffer: Vec<u8> = Vec::with_capacity(FILE_BUFFER);
        let mut at = 0;
        loop {
            buffer.clear();
            let BufResult(read, filled) = from.read_at(buffer, at).await;
            let n = read?;
            if n == 0 {
                break;
            }
            let BufResult(written, slice) = to.write_all_at(filled.slice(..n), at).await;
            written?;
            buffer = slice.into_inner();
            at += n as u64;
        }
        from.close().await?;
        to.close().await
    })
}
