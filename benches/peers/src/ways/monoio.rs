//! monoio 0.2 on io_uring.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use ::monoio::buf::{IoBuf, IoBufMut};
use ::monoio::fs::File;
use ::monoio::io::splice::{SpliceDestination, SpliceSource};
use ::monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt, Splitable};
use ::monoio::net::TcpStream;
use ::monoio::net::unix::new_pipe;
use ::monoio::{IoUringDriver, RuntimeBuilder};

use super::{FILE_BUFFER, RELAY_BUFFER, ROOM};

/// The size of a pipe; monoio does not let its size be changed, and `monoio::io::zero_copy` moves 4 KiB at a time.
const PIPE: u32 = 64 << 10;

/// Task work runs when the thread enters the kernel anyway, instead of interrupting it; `DEFER_TASKRUN` was no cheaper.
fn run<F: Future<Output = io::Result<()>>>(work: F) -> io::Result<()> {
    let mut ring = io_uring::IoUring::builder();
    ring.setup_coop_taskrun().setup_taskrun_flag();
    RuntimeBuilder::<IoUringDriver>::new().with_entries(1024).uring_builder(ring).build()?.block_on(work)
}

pub(super) fn echo(listener: TcpListener) -> io::Result<()> {
    run(async {
        let listener = ::monoio::net::TcpListener::from_std(listener)?;
        loop {
            let (mut stream, _) = listener.accept().await?;
            ::monoio::spawn(async move {
                let mut buffer: Vec<u8> = Vec::with_capacity(ROOM);
                loop {
                    // A read sets the length of the buffer, and may fill all that it holds.
                    let (read, filled) = stream.read(buffer).await;
                    if read? == 0 {
                        return io::Result::Ok(());
                    }
                    let written;
                    (written, buffer) = stream.write_all(filled).await;
                    written?;
                }
            });
        }
    })
}

pub(super) fn relay(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    relay_by(listener, sink, async |one, other| {
        let ((one_read, one_write), (other_read, other_write)) = (one.into_split(), other.into_split());
        let reverse = ::monoio::spawn(copy(other_read, one_write));
        copy(one_read, other_write).await?;
        reverse.await
    })
}

pub(super) fn relay_spliced(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    relay_by(listener, sink, async |one, other| {
        let ((one_read, one_write), (other_read, other_write)) = (one.into_split(), other.into_split());
        let reverse = ::monoio::spawn(splice(other_read, one_write));
        splice(one_read, other_write).await?;
        reverse.await
    })
}

fn relay_by<F>(listener: TcpListener, sink: SocketAddr, copy: F) -> io::Result<()>
where
    F: AsyncFn(TcpStream, TcpStream) -> io::Result<()>,
{
    run(async {
        let listener = ::monoio::net::TcpListener::from_std(listener)?;
        loop {
            let (one, _) = listener.accept().await?;
            let other = TcpStream::connect_addr(sink).await?;
            other.set_nodelay(true)?;
            copy(one, other).await?;
        }
    })
}

async fn copy(mut from: impl AsyncReadRent, mut to: impl AsyncWriteRent) -> io::Result<()> {
    let mut buffer: Vec<u8> = Vec::with_capacity(RELAY_BUFFER);
    loop {
        let (read, filled) = from.read(buffer).await;
        if read? == 0 {
            return to.shutdown().await;
        }
        let written;
        (written, buffer) = to.write_all(filled).await;
        written?;
    }
}

async fn splice<R: SpliceSource, W: SpliceDestination + AsyncWriteRent>(mut from: R, mut to: W) -> io::Result<()> {
    let (mut out, mut into) = new_pipe()?;
    loop {
        let mut left = from.splice_to_pipe(&mut into, PIPE).await?;
        if left == 0 {
            return to.shutdown().await;
        }
        while left > 0 {
            left -= to.splice_from_pipe(&mut out, left).await?;
        }
    }
}

pub(super) fn file(from: &Path, to: &Path) -> io::Result<()> {
    run(async {
        let (from, to) = (File::open(from).await?, File::create(to).await?);
        let mut buffer = vec![0; FILE_BUFFER];
        let mut at = 0;
        loop {
            let (read, slice) = from.read_at(buffer.slice_mut(..), at).await;
            let n = read?;
            buffer = slice.into_inner();
            if n == 0 {
                break;
            }
            let (written, slice) = to.write_all_at(buffer.slice(..n), at).await;
            written?;
            buffer = slice.into_inner();
            at += n as u64;
        }
        from.close().await?;
        to.close().await
    })
}
