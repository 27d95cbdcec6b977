//! A burst of small writes over loopback TCP: its system calls, and its cost for the sender.
//!
//! One burst is 1, 8 or 64 chunks of 64 B or 1 KiB, written in one turn of a current-thread runtime. Then the task
//! yields, which ends the turn; every case includes that yield. A thread reads and compares every byte.
//!
//! | case | a burst is |
//! |---|---|
//! | millstream, flushed | `write_all` of each chunk, then [`flushed`](millstream::net::TcpStream::flushed) |
//! | millstream, yielding | `write_all` of each chunk; the end of the turn sends them |
//! | tokio write_all | `write_all` of each chunk on a stream with `TCP_NODELAY` |
//! | tokio BufWriter | the same through 8 KiB of buffer, then `flush` |
//! | floor, tokio vectored | all chunks in `write_vectored`: possible for a caller that has them all at once |
//!
//! The note is the number of calls for each burst. *alone* has no other bytes to send and is exact. *in a row* writes a
//! burst in each turn: the yielding case gathers over several turns, up to 200 us or 64 KiB, and a full socket splits
//! calls. Calls that sent nothing are not counted. The figures are the CPU time of the sending thread. **Noise**: wall
//! time, because reader and sender compete for the same CPUs.

use std::io::{self, IoSlice, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use millstream::metrics::Snapshot;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::common::contest::{Case, Contender, Run, Spent};
use crate::common::suite::Suite;
use crate::common::{cpu_of_this_thread, noise, pair, runtime};
use crate::counted::Counted;

enum Way {
    Flushed(millstream::net::TcpStream),
    Yielding(millstream::net::TcpStream),
    WriteAll(Counted),
    Buffered(BufWriter<Counted>),
    Vectored(Counted),
}

impl Way {
    async fn burst(&mut self, chunks: &[&[u8]]) -> io::Result<()> {
        match self {
            Self::Flushed(stream) => {
                for chunk in chunks {
                    stream.write_all(chunk).await?;
                }
                stream.flushed().await
            }
            Self::Yielding(stream) => {
                for chunk in chunks {
                    stream.write_all(chunk).await?;
                }
                Ok(())
            }
            Self::WriteAll(stream) => {
                for chunk in chunks {
                    stream.write_all(chunk).await?;
                }
                Ok(())
            }
            Self::Buffered(stream) => {
                for chunk in chunks {
                    stream.write_all(chunk).await?;
                }
                stream.flush().await
            }
            Self::Vectored(stream) => {
                let mut slices: Vec<IoSlice<'_>> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
                let mut left = &mut slices[..];
                while !left.is_empty() {
                    let n = stream.write_vectored(left).await?;
                    IoSlice::advance_slices(&mut left, n);
                }
                Ok(())
            }
        }
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Flushed(stream) | Self::Yielding(stream) => stream.shutdown().await,
            Self::WriteAll(stream) | Self::Vectored(stream) => stream.shutdown().await,
            Self::Buffered(stream) => stream.shutdown().await,
        }
    }

    /// Returns the number of system calls that sent something. Ours are those of the process: only one stream of ours
    /// is in use at a time.
    fn calls(&self) -> u64 {
        match self {
            Self::Flushed(_) | Self::Yielding(_) => Snapshot::now().writes,
            Self::WriteAll(stream) | Self::Vectored(stream) => stream.calls(),
            Self::Buffered(stream) => stream.get_ref().calls(),
        }
    }
}

/// The other end: compares the received bytes with the repeated burst.
struct Reader {
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    expected: AtomicU64,
    /// Signalled when `expected` bytes have arrived, or the reader has ended.
    arrived: Notify,
    ended: AtomicBool,
}

impl Reader {
    fn start(mut stream: std::net::TcpStream, burst: Vec<u8>) -> Self {
        struct End(Arc<Progress>);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.ended.store(true, Ordering::Release);
                self.0.arrived.notify_one();
            }
        }
        let progress = Arc::new(Progress::default());
        let end = End(Arc::clone(&progress));
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 256 << 10];
            let mut total = 0;
            let mut at = 0;
            loop {
                let n = stream.read(&mut buffer).unwrap();
                if n == 0 {
                    return;
                }
                let mut got = &buffer[..n];
                while !got.is_empty() {
                    let len = got.len().min(burst.len() - at);
                    assert!(got[..len] == burst[at..at + len], "wrong bytes in {at}..{}", at + len);
                    got = &got[len..];
                    at = (at + len) % burst.len();
                }
                total += n as u64;
                if total == end.0.expected.load(Ordering::Acquire) {
                    end.0.arrived.notify_one();
                }
            }
        });
        Self { thread, progress }
    }

    /// Waits until all expected bytes have arrived.
    async fn arrived(&self) {
        self.progress.arrived.notified().await;
        assert!(!self.progress.ended.load(Ordering::Acquire), "the reader has ended");
    }
}

struct Sender<'a> {
    runtime: &'a Runtime,
    chunks: &'a [&'a [u8]],
    way: Way,
    reader: Option<Reader>,
    calls: u64,
    bursts: u64,
}

impl<'a> Sender<'a> {
    fn connect(
        runtime: &'a Runtime,
        chunks: &'a [&'a [u8]],
        way: impl FnOnce(std::net::TcpStream) -> io::Result<Way>,
    ) -> Self {
        let _entered = runtime.enter();
        let (ours, theirs) = pair();
        ours.set_nonblocking(true).unwrap();
        let reader = Some(Reader::start(theirs, chunks.concat()));
        Self { runtime, chunks, way: way(ours).unwrap(), reader, calls: 0, bursts: 0 }
    }

    /// Sends `bursts`, each in its own turn, and waits until they have arrived. Returns the number of calls.
    fn send(&mut self, bursts: u64) -> u64 {
        let reader = self.reader.as_ref().expect("still running");
        let len = self.chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        reader.progress.expected.fetch_add(len * bursts, Ordering::Release);
        let calls = self.way.calls();
        self.runtime.block_on(async {
            for _ in 0..bursts {
                self.way.burst(self.chunks).await.unwrap();
                yield_now().await;
            }
            reader.arrived().await;
        });
        self.way.calls() - calls
    }
}

impl Run for Sender<'_> {
    fn run(&mut self, bursts: u64) -> Spent {
        let (start, cpu) = (Instant::now(), cpu_of_this_thread());
        self.calls += self.send(bursts);
        self.bursts += bursts;
        Spent { wall: start.elapsed(), cpu: cpu_of_this_thread() - cpu }
    }

    fn note(&mut self) -> String {
        let bursts = 8;
        let alone = (0..bursts).map(|_| self.send(1)).sum::<u64>() as f64 / f64::from(bursts);
        let in_a_row = self.calls as f64 / self.bursts as f64;
        format!("calls/burst: {alone:.2} alone, {in_a_row:.3} in a row")
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        self.runtime.block_on(self.way.shutdown()).unwrap();
        if let Some(reader) = self.reader.take()
            && reader.thread.join().is_err()
        {
            // The thread has printed the reason.
            std::process::exit(101);
        }
    }
}

fn counted(stream: std::net::TcpStream) -> io::Result<Counted> {
    Ok(Counted::new(TcpStream::from_std(stream)?, &Arc::default()))
}

/// Compares all ways to send `count` chunks of `len` bytes.
fn compare(suite: &mut Suite, count: usize, len: usize) {
    let burst = noise(count * len);
    let chunks: Vec<&[u8]> = burst.chunks(len).collect();
    let runtime = runtime();
    type Make = fn(std::net::TcpStream) -> io::Result<Way>;
    let ways: [(&str, Make); 5] = [
        ("millstream, yielding", |s| Ok(Way::Yielding(millstream::net::TcpStream::from_std(s)?))),
        ("millstream, flushed", |s| Ok(Way::Flushed(millstream::net::TcpStream::from_std(s)?))),
        ("tokio write_all", |s| Ok(Way::WriteAll(counted(s)?))),
        ("tokio BufWriter", |s| Ok(Way::Buffered(BufWriter::with_capacity(8 << 10, counted(s)?)))),
        ("floor, tokio vectored", |s| Ok(Way::Vectored(counted(s)?))),
    ];
    let title = format!("gather, {count} x {len} B");
    suite.run(&Case::new(&title, "CPU us/burst", 1), || {
        let sender = |make| Box::new(Sender::connect(&runtime, &chunks, make));
        ways.into_iter().map(|(name, make)| Contender { name, run: sender(make) }).collect()
    });
}

pub(crate) fn run(suite: &mut Suite) {
    for len in [64, 1024] {
        for count in [1, 8, 64] {
            compare(suite, count, len);
        }
    }
}
