//! Memory lent to user code for reading: nothing keeps it by reference, and it contains no bytes of earlier users.

use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream::buf::lease;
use millstream::codec::{ReadVectored, Reader};
use millstream::copy::copy;
use millstream::net::TcpStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{LARGE, run};

use testkit::alone;

const LEN: usize = 4096;

/// Writes `bytes` without waiting to a stream that gathers.
fn gather(stream: &mut TcpStream, bytes: &[u8]) {
    let written = Pin::new(stream).poll_write(&mut Context::from_waker(Waker::noop()), bytes);
    assert!(matches!(written, Poll::Ready(Ok(n)) if n == bytes.len()), "{written:?}");
}

/// A reader that writes its buffer to a stream of ours, and only then fills it with what it "reads".
struct Sender {
    stream: TcpStream,
    reads: usize,
}

impl Sender {
    /// Returns the number of bytes "read".
    fn send(&mut self, spare: &mut [u8]) -> usize {
        if self.reads == 0 {
            return 0;
        }
        self.reads -= 1;
        spare[..LEN].fill(b'A');
        gather(&mut self.stream, &spare[..LEN]);
        spare[..LEN].fill(b'B');
        LEN
    }
}

impl AsyncRead for Sender {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n = self.send(buf.initialize_unfilled());
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

/// Like [`Sender`], with `readv`.
struct VectoredSender(std::sync::Mutex<Sender>);

impl AsyncRead for VectoredSender {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        unreachable!("it reads several pieces")
    }
}

impl ReadVectored for VectoredSender {
    fn poll_read_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(self.0.lock().unwrap().send(&mut bufs[0]))
    }
}

/// Returns a stream of ours that gathers, and a task that reads all bytes of its peer.
async fn stream() -> (TcpStream, tokio::task::JoinHandle<Vec<u8>>) {
    let (mut ours, mut theirs) = testkit::pair().await;
    // The first write may be sent at once.
    ours.write_all(b"x").await.unwrap();
    let got = tokio::spawn(async move {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.unwrap();
        got.split_off(1)
    });
    (ours, got)
}

#[test]
fn a_stream_sends_what_was_written_from_lent_memory() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        let (mut ours, got) = stream().await;
        let mut lease = lease(2 * LEN);
        lease
            .read_with(|spare| {
                spare[..LEN].fill(b'A');
                gather(&mut ours, &spare[..LEN]);
                Ok(0)
            })
            .unwrap();
        lease.extend_from_slice(&[b'B'; LEN]);
        ours.shutdown().await.unwrap();
        assert!(got.await.unwrap() == [b'A'; LEN]);
    });
}

#[test]
fn a_reader_under_a_copy_cannot_change_what_it_wrote() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        let (ours, got) = stream().await;
        let mut sender = Sender { stream: ours, reads: 3 };
        let mut copied = Vec::new();
        copy(&mut sender, &mut copied).await.unwrap();
        sender.stream.shutdown().await.unwrap();
        assert!(copied == [b'B'; 3 * LEN]);
        assert!(got.await.unwrap() == [b'A'; 3 * LEN]);
    });
}

#[test]
fn a_reader_under_our_reader_cannot_change_what_it_wrote() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        let (ours, got) = stream().await;
        let mut reader = Reader::new(Sender { stream: ours, reads: 1 });
        assert!(reader.chunk().await.unwrap() == [b'B'; LEN][..]);
        reader.get_mut().stream.shutdown().await.unwrap();
        assert!(got.await.unwrap() == [b'A'; LEN]);
    });
}

#[test]
fn a_vectored_reader_cannot_change_what_it_wrote() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        let (ours, got) = stream().await;
        let mut reader = Reader::vectored(VectoredSender(Sender { stream: ours, reads: 1 }.into()));
        assert!(reader.chunk().await.unwrap() == [b'B'; LEN][..]);
        reader.get_mut().0.get_mut().unwrap().stream.shutdown().await.unwrap();
        assert!(got.await.unwrap() == [b'A'; LEN]);
    });
}

/// A reader that reports bytes it never wrote, in safe code: the buffer must hold zeros.
struct Claims(usize);

impl AsyncRead for Claims {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let n = self.0.min(buf.remaining());
        self.0 -= n;
        buf.initialize_unfilled_to(n);
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

/// Writes to all blocks that this thread leases next.
fn soil() {
    for size in [512, 4 << 10, 16 << 10, 64 << 10, LARGE] {
        let leases: Vec<_> = (0..80)
            .map(|_| {
                let mut lease = lease(size);
                lease.extend_from_slice(&vec![b'!'; lease.spare_len()]);
                lease
            })
            .collect();
        drop(leases);
    }
}

#[test]
fn what_a_reader_only_claims_to_have_written_is_zeros() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        soil();
        let mut copied = Vec::new();
        copy(&mut Claims(200_000), &mut copied).await.unwrap();
        assert_eq!(copied.len(), 200_000);
        assert!(copied.iter().all(|&b| b == 0), "copied what an earlier lease has left");
        soil();
        let chunk = Reader::new(Claims(LEN)).chunk().await.unwrap();
        assert!(chunk.len() == LEN && chunk.iter().all(|&b| b == 0), "read what an earlier lease has left");
        let mut lease = lease(LEN);
        lease.read_with(|spare| Ok(spare.len())).unwrap();
        assert!(lease.as_ref().iter().all(|&b| b == 0), "lent what an earlier lease has left");
    });
}

/// A reader that replaces the given buffer by its own.
struct Swaps;

impl AsyncRead for Swaps {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        *buf = ReadBuf::new(Box::leak(vec![b'C'; LEN].into_boxed_slice()));
        buf.set_filled(LEN);
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_reader_that_swaps_the_memory_it_was_given_is_refused() {
    if alone::ran_in_child() {
        return;
    }
    run(async {
        for ours in [true, false] {
            let reads = tokio::spawn(async move {
                match ours {
                    true => drop(Reader::new(Swaps).chunk().await),
                    false => drop(copy(&mut Swaps, &mut tokio::io::sink()).await),
                }
            });
            assert!(tokio::time::timeout(Duration::from_secs(30), reads).await.unwrap().unwrap_err().is_panic());
        }
    });
}
