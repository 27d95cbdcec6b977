//! Files as responses: HTTP/1.1 over loopback, one keep-alive connection, files in the page cache.
//!
//! | case | body | stream |
//! |---|---|---|
//! | millstream Files | [`Files`]: open files are kept, bodies are mapped | [`millstream::net::TcpStream`] |
//! | ReaderStream 4 KiB | `tokio::fs::File` in a default `ReaderStream` | tokio's |
//! | ReaderStream 64 KiB | the same with a larger buffer | tokio's |
//! | tower-http ServeDir | default (64 KiB) | tokio's |
//!
//! HTTP is always hyper's, with its defaults, on a current-thread runtime on its own thread, with `TCP_NODELAY`. The
//! rivals open the file for each request; [`Files`] keeps it open, which is part of the comparison. The client is a
//! loop on a blocking socket: it compares every byte of the first response, and status and length of all.
//!
//! The figures are the CPU time of the server for each response, including its blocking threads: all threads of the
//! process but the client's. **Noise**: the kernel's work for either end of a loopback connection is charged to the
//! running thread.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

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

use crate::common::contest::{Case, Contender, Run, Spent};
use crate::common::suite::Suite;
use crate::common::{cpu_of_others, noise, pair, runtime};

const SIZES: [(&str, usize); 4] =
    [("10 KiB", 10 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)];

/// A client that requests the same file repeatedly.
struct Client {
    stream: std::net::TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    /// Sends a request and passes each piece of the body to `taker`. Returns the length of the body, which is as
    /// announced.
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
        assert_eq!(got, promised, "the body is longer than announced");
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

/// A server with one connection, and its client.
struct Served {
    /// `None` once it has disconnected.
    client: Option<Client>,
    server: Option<JoinHandle<()>>,
    len: usize,
    bytes: u64,
    by_sendfile: u64,
}

impl Served {
    fn start<F>(file: &str, contents: &[u8], serve: impl FnOnce(std::net::TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()>,
    {
        let (ours, theirs) = pair();
        theirs.set_nonblocking(true).unwrap();
        let server = std::thread::spawn(move || runtime().block_on(async { serve(theirs).await }));
        let request = format!("GET /{file} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        let mut client = Client { stream: ours, request, buffer: vec![0; 256 << 10] };
        let mut at = 0;
        let got = client.get(|piece| {
            assert!(piece == &contents[at..at + piece.len()], "wrong bytes in {at}..{}", at + piece.len());
            at += piece.len();
        });
        assert_eq!(got, contents.len());
        Self { client: Some(client), server: Some(server), len: got, bytes: 0, by_sendfile: 0 }
    }
}

impl Run for Served {
    fn run(&mut self, responses: u64) -> Spent {
        let client = self.client.as_mut().expect("still connected");
        let (start, cpu, counts) = (Instant::now(), cpu_of_others(), Snapshot::now());
        for _ in 0..responses {
            assert_eq!(client.get(|_| {}), self.len);
        }
        self.bytes += responses * self.len as u64;
        self.by_sendfile += Snapshot::now().since(&counts).bytes_by_sendfile;
        Spent { wall: start.elapsed(), cpu: cpu_of_others().saturating_sub(cpu) }
    }

    fn note(&mut self) -> String {
        format!("{}% by sendfile", self.by_sendfile * 100 / self.bytes)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.client.take());
        if let Some(server) = self.server.take()
            && server.join().is_err()
        {
            // The thread has printed the reason.
            std::process::exit(101);
        }
    }
}

async fn connection<I, S>(io: I, service: S)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody: Body<Error: std::error::Error + Send + Sync> + 'static>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let connection = pin!(http1::Builder::new().serve_connection(io, service));
    connection.await.unwrap();
}

/// The usual way of services: the file as a stream of reads.
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

fn contenders(dir: &Path, file: &str, contents: &[u8]) -> Vec<Contender<'static>> {
    fn tokio(stream: std::net::TcpStream) -> TokioIo<tokio::net::TcpStream> {
        TokioIo::new(tokio::net::TcpStream::from_std(stream).unwrap())
    }
    let dir: Arc<Path> = dir.into();
    let reader = |name, capacity| {
        let dir = Arc::clone(&dir);
        let served = Served::start(file, contents, move |stream| {
            let service =
                move |request: Request<Incoming>| reader_stream(dir.join(&request.uri().path()[1..]), capacity);
            connection(tokio(stream), service_fn(service))
        });
        Contender { name, run: Box::new(served) }
    };
    let (files, serve_dir) = (Files::new(&dir).unwrap(), ServeDir::new(&dir));
    let ours = Served::start(file, contents, move |stream| {
        connection(millstream::net::TcpStream::from_std(stream).unwrap(), TowerToHyperService::new(files))
    });
    let tower_http =
        Served::start(file, contents, move |stream| connection(tokio(stream), TowerToHyperService::new(serve_dir)));
    vec![
        Contender { name: "millstream Files", run: Box::new(ours) },
        reader("ReaderStream 4 KiB", 4 << 10),
        reader("ReaderStream 64 KiB", 64 << 10),
        Contender { name: "tower-http ServeDir", run: Box::new(tower_http) },
    ]
}

pub(crate) fn run(suite: &mut Suite) {
    let dir = tempfile::tempdir().unwrap();
    for (size, len) in SIZES {
        let title = format!("response, {size}");
        suite.run(&Case::new(&title, "CPU us/response", 1), || {
            let file = format!("{len}.bin");
            let contents = noise(len);
            let mut written = std::fs::File::create(dir.path().join(&file)).unwrap();
            written.write_all(&contents).unwrap();
            // Synced, so that no write-back runs during the measurements.
            written.sync_all().unwrap();
            contenders(dir.path(), &file, &contents)
        });
    }
}
