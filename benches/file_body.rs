//! Files as responses: HTTP/1.1 over loopback, one connection that is kept, files in the page cache.
//!
//! | case | body | stream |
//! |---|---|---|
//! | millstream Files | [`Files`]: open files are kept, bodies are mapped | [`millstream::net::TcpStream`] |
//! | ReaderStream 4 KiB | `tokio::fs::File` in a `ReaderStream` as it comes | tokio's |
//! | ReaderStream 64 KiB | the same with a larger buffer | tokio's |
//! | tower-http ServeDir | as it comes (64 KiB) | tokio's |
//!
//! HTTP is hyper's in all of them, with its defaults, on a current-thread runtime in a thread of its own; `TCP_NODELAY` is
//! set. The rivals open the file for each request; that [`Files`] does not is part of what is compared. The client is a
//! loop on a blocking socket: it compares every byte of the first response, and status and lengths of all.
//!
//! **Look at** the table at the end: CPU time of the server for each response, its blocking threads included, measured by
//! turns. It counts all threads of the process but the client's. **Noise**: the timings that criterion prints, because
//! server and client compete for the same CPUs; and what the kernel does on behalf of either end of a loopback connection
//! is charged to whoever happens to run.
//! Congestion control is `reno` unless `MILLSTREAM_BENCH_CONGESTION` names another, because one that paces measures timers.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use futures_util::TryStreamExt;
use http_body_util::StreamBody;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use millstream::files::Files;
use millstream::metrics::Snapshot;
use tokio_util::io::ReaderStream;
use tower_http::services::ServeDir;

mod common;
use common::{Row, by_turns, cpu_of_others, is_test, noise, runtime, table};

/// Sizes of the files, and how many responses a round takes in which CPU time is measured.
const SIZES: [(&str, usize, u64); 4] =
    [("10 KiB", 10 << 10, 500), ("64 KiB", 64 << 10, 300), ("1 MiB", 1 << 20, 40), ("64 MiB", 64 << 20, 1)];

/// Bytes from which on criterion takes few samples.
const LARGE: usize = 16 << 20;

/// A client that asks for the same file over and over.
struct Client {
    stream: std::net::TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    /// Asks once, gives each piece of the body to `taker`, and says how long the body was, which is as long as promised.
    fn get(&mut self, mut taker: impl FnMut(&[u8])) -> usize {
        self.stream.write_all(&self.request).unwrap();
        let mut filled = 0;
        let head = loop {
            let n = self.stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(n > 0, "the connection ended within a head");
            filled += n;
            if let Some(end) = self.buffer[..filled].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let promised = content_length(&self.buffer[..head]);
        taker(&self.buffer[head..filled]);
        let mut got = filled - head;
        while got < promised {
            let n = self.stream.read(&mut self.buffer).unwrap();
            assert!(n > 0, "the connection ended at {got} of {promised} bytes");
            taker(&self.buffer[..n]);
            got += n;
        }
        assert_eq!(got, promised, "more came than was promised");
        got
    }
}

fn content_length(head: &[u8]) -> usize {
    let head = std::str::from_utf8(head).unwrap();
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("HTTP/1.1 200 OK"));
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
    });
    length.expect("a response without a length")
}

/// A server with one connection, and the client at its other end.
struct Contender {
    name: &'static str,
    client: Client,
    server: JoinHandle<()>,
    /// Criterion has timed it: it was not filtered out.
    chosen: bool,
}

impl Contender {
    fn start<F>(name: &'static str, file: &str, serve: impl FnOnce(std::net::TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()>,
    {
        let (ours, theirs) = common::pair();
        theirs.set_nonblocking(true).unwrap();
        let server = std::thread::spawn(move || runtime().block_on(async { serve(theirs).await }));
        let request = format!("GET /{file} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        let client = Client { stream: ours, request, buffer: vec![0; 256 << 10] };
        Self { name, client, server, chosen: false }
    }

    /// Compares every byte of a response.
    fn check(&mut self, contents: &[u8]) {
        let mut at = 0;
        let got = self.client.get(|piece| {
            assert!(piece == &contents[at..at + piece.len()], "wrong bytes in {at}..{}", at + piece.len());
            at += piece.len();
        });
        assert_eq!(got, contents.len());
    }

    /// Asks `responses` times; gives the CPU time that the server took.
    fn cpu(&mut self, responses: u64, len: usize) -> Duration {
        let before = cpu_of_others();
        for _ in 0..responses {
            assert_eq!(self.client.get(|_| {}), len);
        }
        cpu_of_others() - before
    }

    fn finish(self) {
        drop(self.client);
        self.server.join().unwrap();
    }
}

/// Runs a connection to its end.
async fn connection<I, S>(io: I, service: S)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody: Body<Error: std::error::Error + Send + Sync> + 'static>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let connection = pin!(http1::Builder::new().serve_connection(io, service));
    connection.await.unwrap();
}

/// What most services do: the file as a stream of reads.
async fn reader_stream(
    path: PathBuf,
    capacity: usize,
) -> io::Result<Response<StreamBody<impl futures_util::Stream<Item = io::Result<Frame<Bytes>>>>>> {
    let file = tokio::fs::File::open(path).await?;
    let len = file.metadata().await?.len();
    let frames = ReaderStream::with_capacity(file, capacity).map_ok(Frame::data);
    let mut response = Response::new(StreamBody::new(frames));
    response.headers_mut().insert(CONTENT_LENGTH, len.into());
    Ok(response)
}

fn contenders(dir: &Path, file: &str) -> Vec<Contender> {
    fn tokio(stream: std::net::TcpStream) -> TokioIo<tokio::net::TcpStream> {
        TokioIo::new(tokio::net::TcpStream::from_std(stream).unwrap())
    }
    let dir: Arc<Path> = dir.into();
    let reader = |name, capacity| {
        let dir = Arc::clone(&dir);
        Contender::start(name, file, move |stream| {
            let service =
                move |request: Request<Incoming>| reader_stream(dir.join(&request.uri().path()[1..]), capacity);
            connection(tokio(stream), service_fn(service))
        })
    };
    let (files, serve_dir) = (Files::new(&dir).unwrap(), ServeDir::new(&dir));
    vec![
        Contender::start("millstream Files", file, move |stream| {
            connection(millstream::net::TcpStream::from_std(stream).unwrap(), TowerToHyperService::new(files))
        }),
        reader("ReaderStream 4 KiB", 4 << 10),
        reader("ReaderStream 64 KiB", 64 << 10),
        Contender::start("tower-http ServeDir", file, move |stream| {
            connection(tokio(stream), TowerToHyperService::new(serve_dir))
        }),
    ]
}

/// Times all ways to serve a file of `len` bytes; gives the table of CPU time.
fn compare(criterion: &mut Criterion, dir: &Path, size: &str, len: usize, responses: u64) -> Option<String> {
    let file = format!("{len}.bin");
    let contents = noise(len);
    let mut written = std::fs::File::create(dir.join(&file)).unwrap();
    written.write_all(&contents).unwrap();
    // So that nothing is written back while others are measured.
    written.sync_all().unwrap();
    let mut contenders = contenders(dir, &file);

    let mut group = criterion.benchmark_group(format!("file_body/{size}"));
    group.throughput(Throughput::Bytes(len as u64));
    if len >= LARGE {
        group.sample_size(10).sampling_mode(SamplingMode::Flat);
    }
    for contender in &mut contenders {
        group.bench_function(contender.name, |bencher| {
            if !contender.chosen {
                contender.chosen = true;
                contender.check(&contents);
            }
            bencher.iter_custom(|responses| {
                let start = Instant::now();
                for _ in 0..responses {
                    assert_eq!(contender.client.get(|_| {}), len);
                }
                start.elapsed()
            });
        });
    }
    group.finish();

    // Those that the command line has chosen.
    let (mut chosen, rest): (Vec<Contender>, Vec<Contender>) = contenders.into_iter().partition(|c| c.chosen);
    rest.into_iter().for_each(Contender::finish);
    let mut by_sendfile = vec![0; chosen.len()];
    let cpu = by_turns(chosen.len(), responses, |contender, responses| {
        let before = Snapshot::now();
        let cpu = chosen[contender].cpu(responses, len);
        by_sendfile[contender] = Snapshot::now().since(&before).bytes_by_sendfile * 100 / (responses * len as u64);
        cpu
    });
    let rows = chosen.iter().zip(&cpu).zip(&by_sendfile).map(|((contender, &cpu), by_sendfile)| Row {
        name: contender.name.to_owned(),
        cpu,
        note: format!("{by_sendfile}% by sendfile"),
    });
    let table = (!cpu.is_empty()).then(|| table(size, "response", &rows.collect::<Vec<_>>()));
    chosen.into_iter().for_each(Contender::finish);
    table
}

fn main() {
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    let dir = tempfile::tempdir().unwrap();
    let tables: Vec<String> = SIZES
        .into_iter()
        .filter_map(|(size, len, responses)| compare(&mut criterion, dir.path(), size, len, responses))
        .collect();
    criterion.final_summary();
    if is_test() {
        println!("\n(a test run, one response each: the figures mean nothing)");
    }
    println!("{}", tables.concat());
}
