//! A burst of small writes over loopback TCP: how many system calls it takes, and what it costs the sender.
//!
//! One burst is 1, 8 or 64 chunks of 64 B or 1 KiB, written in one turn of a current-thread runtime; then the task yields,
//! which is the end of the turn. Every case pays for that yield. A thread reads and compares every byte.
//!
//! | case | a burst is |
//! |---|---|
//! | millstream, flushed | `write_all` of each chunk, then [`flushed`](millstream::net::TcpStream::flushed) |
//! | millstream, yielding | `write_all` of each chunk; the end of the turn sends them |
//! | tokio write_all | `write_all` of each chunk on a stream with `TCP_NODELAY` |
//! | tokio BufWriter | the same through 8 KiB of buffer, then `flush` |
//! | tokio vectored | all chunks in `write_vectored`: what a caller can do who has them all at once |
//!
//! **Look at** the calls for each burst in the tables after the timings. *alone* is with nothing else to send, which is
//! exact; *in a row* is bursts written one turn after the other, where the yielding case gathers over several turns, up
//! to 200 us or 64 KiB, and where a full socket splits calls. Calls that sent nothing are left out for all. Then look at the
//! CPU time of the sending thread, measured by turns, which other load on the machine disturbs least. **Noise**: the
//! timings and throughput that criterion prints, because reader and sender compete for the same CPUs.
//! Congestion control is `reno` unless `MILLSTREAM_BENCH_CONGESTION` names another, because one that paces measures timers.

use std::io::{self, IoSlice, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use millstream::metrics::Snapshot;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::yield_now;

mod common;
use common::{Row, by_turns, cpu_of_this_thread, is_test, noise, runtime, table};

/// Bytes, and most bursts, of a round in which CPU time is measured: some tens of milliseconds.
const CPU_BYTES: u64 = 32 << 20;
const CPU_BURSTS: u64 = 8192;

/// A tokio stream that counts the system calls that send something: one for each write that does not have to wait.
struct Counted {
    stream: TcpStream,
    calls: u64,
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.calls += u64::from(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.calls += u64::from(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The ways to send a burst.
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

    /// System calls that sent something so far. Ours are those of the process: only one stream of ours is in use at a time.
    fn calls(&self) -> u64 {
        match self {
            Self::Flushed(_) | Self::Yielding(_) => Snapshot::now().writes,
            Self::WriteAll(stream) | Self::Vectored(stream) => stream.calls,
            Self::Buffered(stream) => stream.get_ref().calls,
        }
    }
}

/// The other end: compares what arrives with the burst, over and over.
struct Reader {
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    expected: AtomicU64,
    /// `expected` bytes have arrived, or the reader has ended.
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

    /// Waits until everything that is expected has arrived.
    async fn arrived(&self) {
        self.progress.arrived.notified().await;
        assert!(!self.progress.ended.load(Ordering::Acquire), "the reader has ended");
    }
}

/// One way to send, connected.
struct Sender {
    name: &'static str,
    way: Way,
    reader: Reader,
    /// Calls for each burst in the timed runs.
    in_a_row: Option<f64>,
}

impl Sender {
    fn connect(name: &'static str, burst: &[u8], way: impl FnOnce(std::net::TcpStream) -> io::Result<Way>) -> Self {
        let (ours, theirs) = common::pair();
        ours.set_nonblocking(true).unwrap();
        Self { name, way: way(ours).unwrap(), reader: Reader::start(theirs, burst.to_vec()), in_a_row: None }
    }

    /// Sends `bursts`, each in a turn of its own, and waits until they have arrived. Says how many calls that took, and
    /// how much CPU time of this thread.
    async fn send(&mut self, chunks: &[&[u8]], bursts: u64) -> (u64, Duration) {
        let len = chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        self.reader.progress.expected.fetch_add(len * bursts, Ordering::Release);
        let (calls, cpu) = (self.way.calls(), cpu_of_this_thread());
        for _ in 0..bursts {
            self.way.burst(chunks).await.unwrap();
            yield_now().await;
        }
        self.reader.arrived().await;
        (self.way.calls() - calls, cpu_of_this_thread() - cpu)
    }

    /// Calls for a burst that has nothing before or after it.
    async fn send_alone(&mut self, chunks: &[&[u8]]) -> f64 {
        let bursts = 8;
        let mut calls = 0;
        for _ in 0..bursts {
            calls += self.send(chunks, 1).await.0;
        }
        calls as f64 / f64::from(bursts)
    }

    async fn finish(mut self) {
        self.way.shutdown().await.unwrap();
        self.reader.thread.join().unwrap();
    }
}

fn connect(burst: &[u8]) -> Vec<Sender> {
    fn counted(stream: std::net::TcpStream) -> io::Result<Counted> {
        Ok(Counted { stream: TcpStream::from_std(stream)?, calls: 0 })
    }
    vec![
        Sender::connect("millstream, flushed", burst, |s| Ok(Way::Flushed(millstream::net::TcpStream::from_std(s)?))),
        Sender::connect("millstream, yielding", burst, |s| Ok(Way::Yielding(millstream::net::TcpStream::from_std(s)?))),
        Sender::connect("tokio write_all", burst, |s| Ok(Way::WriteAll(counted(s)?))),
        Sender::connect("tokio BufWriter", burst, |s| {
            Ok(Way::Buffered(BufWriter::with_capacity(8 << 10, counted(s)?)))
        }),
        Sender::connect("tokio vectored", burst, |s| Ok(Way::Vectored(counted(s)?))),
    ]
}

/// Times all ways to send `count` chunks of `len` bytes; gives the table of calls and CPU time.
fn compare(criterion: &mut Criterion, count: usize, len: usize) -> Option<String> {
    let burst = noise(count * len);
    let chunks: Vec<&[u8]> = burst.chunks(len).collect();
    let runtime = runtime();
    let mut senders = {
        let _entered = runtime.enter();
        connect(&burst)
    };

    let title = format!("{count} x {len} B");
    let mut group = criterion.benchmark_group(format!("egress/{title}"));
    group.throughput(Throughput::Bytes(burst.len() as u64));
    for sender in &mut senders {
        group.bench_function(sender.name, |bencher| {
            bencher.iter_custom(|bursts| {
                runtime.block_on(async {
                    let start = Instant::now();
                    let (calls, _) = sender.send(&chunks, bursts).await;
                    sender.in_a_row = Some(calls as f64 / bursts as f64);
                    start.elapsed()
                })
            });
        });
    }
    group.finish();

    // Those that the command line has chosen.
    let (mut chosen, rest): (Vec<Sender>, Vec<Sender>) = senders.into_iter().partition(|s| s.in_a_row.is_some());
    rest.into_iter().for_each(|sender| runtime.block_on(sender.finish()));
    let bursts = (CPU_BYTES / burst.len() as u64).min(CPU_BURSTS);
    let cpu = by_turns(chosen.len(), bursts, |sender, bursts| runtime.block_on(chosen[sender].send(&chunks, bursts)).1);
    let rows = chosen.into_iter().zip(cpu).map(|(mut sender, cpu)| {
        let alone = runtime.block_on(sender.send_alone(&chunks));
        let in_a_row = sender.in_a_row.unwrap_or_default();
        let row = Row {
            name: sender.name.to_owned(),
            cpu,
            note: format!("calls/burst: {alone:.2} alone, {in_a_row:.3} in a row"),
        };
        runtime.block_on(sender.finish());
        row
    });
    let rows: Vec<Row> = rows.collect();
    (!rows.is_empty()).then(|| table(&title, "burst", &rows))
}

fn main() {
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    let tables: Vec<String> = [64, 1024]
        .into_iter()
        .flat_map(|len| [1, 8, 64].map(|count| (count, len)))
        .filter_map(|(count, len)| compare(&mut criterion, count, len))
        .collect();
    criterion.final_summary();
    if is_test() {
        println!("\n(a test run, one burst each: the figures mean nothing)");
    }
    println!("{}", tables.concat());
}
