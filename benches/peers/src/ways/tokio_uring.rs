//! tokio-uring 0.5. It has no splice: what it relays and copies goes through registered buffers.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;

use tokio_uring::buf::BoundedBuf;
use tokio_uring::buf::fixed::{FixedBuf, FixedBufRegistry};
use tokio_uring::fs::File;
use tokio_uring::net::TcpStream;

use super::{FILE_BUFFER, RELAY_BUFFER, ROOM};

/// Task work runs when the thread enters the kernel anyway, instead of interrupting it. With `DEFER_TASKRUN` this runtime
/// would wait forever: it sleeps in epoll, which runs no task work.
fn run<F: Future<Output = io::Result<()>>>(work: F) -> io::Result<()> {
    let mut ring = tokio_uring::uring_builder();
    ring.setup_coop_taskrun().setup_taskrun_flag();
    tokio_uring::builder().entries(1024).uring_builder(&ring).start(work)
}

pub(super) fn echo(listener: TcpListener) -> io::Result<()> {
    run(async {
        let listener = tokio_uring::net::TcpListener::from_std(listener);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio_uring::spawn(async move {
                let mut buffer = vec![0; ROOM];
                loop {
                    let read;
                    (read, buffer) = stream.read(buffer).await;
                    let n = read?;
                    if n == 0 {
                        return io::Result::Ok(());
                    }
                    let (written, slice) = stream.write_all(buffer.slice(..n)).await;
                    written?;
                    buffer = slice.into_inner();
                }
            });
        }
    })
}

/// Registers `N` buffers and checks them out.
fn registered<const N: usize>(len: usize) -> io::Result<[FixedBuf; N]> {
    let registry = FixedBufRegistry::new((0..N).map(|_| vec![0; len]));
    registry.register()?;
    Ok(std::array::from_fn(|n| registry.check_out(n).expect("nobody else has it")))
}

pub(super) fn relay(listener: TcpListener, sink: SocketAddr) -> io::Result<()> {
    run(async {
        let listener = tokio_uring::net::TcpListener::from_std(listener);
        let [mut there, mut back] = registered(RELAY_BUFFER)?;
        loop {
            let (one, _) = listener.accept().await?;
            let one = Rc::new(one);
            let other = Rc::new(TcpStream::connect(sink).await?);
            let reverse = tokio_uring::spawn(copy(Rc::clone(&other), Rc::clone(&one), back));
            there = copy(one, other, there).await?;
            back = reverse.await.expect("it does not panic")?;
        }
    })
}

async fn copy(from: Rc<TcpStream>, to: Rc<TcpStream>, mut buffer: FixedBuf) -> io::Result<FixedBuf> {
    loop {
        let read;
        (read, buffer) = from.read_fixed(buffer).await;
        let n = read?;
        if n == 0 {
            to.shutdown(Shutdown::Write)?;
            return Ok(buffer);
        }
        let (written, slice) = to.write_fixed_all(buffer.slice(..n)).await;
        written?;
        buffer = slice.into_inner();
    }
}

pub(super) fn file(from: &Path, to: &Path) -> io::Result<()> {
    run(async {
        let (from, to) = (File::open(from).await?, File::create(to).await?);
        let [mut buffer] = registered(FILE_BUFFER)?;
        let mut at = 0;
        loop {
            let read;
            (read, buffer) = from.read_fixed_at(buffer, at).await;
            let n = read?;
            if n == 0 {
                break;
            }
            let (written, slice) = to.write_fixed_all_at(buffer.slice(..n), at).await;
            written?;
            buffer = slice.into_inner();
            at += n as u64;
        }
        from.close().await?;
        to.close().await
    })
}
