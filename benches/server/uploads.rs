//! Uploads into files: 64 bodies of 20 MiB at once, by `body::save` and by what a handler of axum does without it.
//!
//! All handlers run on our server, and write to a disk without a sync. The client is this thread: it sends constant memory
//! by plain writes. The CPU time is that of all other threads. The note tells how far the resident memory of the process
//! has grown during a turn, for each upload.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::put;
use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body_util::Full;
use hyper::{Request, Response};
use millstream::body::Save;
use millstream::fs::Durability;
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::io::StreamReader;

use crate::common::contest::{By, Case, Contender, Goal, Run, Spent};
use crate::common::options::options;
use crate::common::server::Server;
use crate::common::suite::Suite;
use crate::common::{cpu_of_others, noise, runtime};

const AT_ONCE: usize = 64;
/// Bounds for our CPU time, as shares of those of a body in memory and of a copied stream.
const OF_BYTES: f64 = 0.35;
const OF_STREAM: f64 = 0.7;

async fn ours(dir: Arc<Path>, request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = dir.join(&request.uri().path()[1..]);
    let saved = Save::new(path).durability(Durability::None).run(request.into_body()).await.unwrap();
    Ok(Response::new(Full::from(saved.len.to_string())))
}

async fn bytes(
    State(dir): State<Arc<Path>>,
    axum::extract::Path(name): axum::extract::Path<String>,
    body: Bytes,
) -> String {
    let len = body.len();
    tokio::fs::write(dir.join(name), body).await.unwrap();
    len.to_string()
}

async fn stream(
    State(dir): State<Arc<Path>>,
    axum::extract::Path(name): axum::extract::Path<String>,
    body: Body,
) -> String {
    let mut file = tokio::fs::File::create(dir.join(name)).await.unwrap();
    let mut reader = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    let len = tokio::io::copy(&mut reader, &mut file).await.unwrap();
    file.flush().await.unwrap();
    len.to_string()
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Ours,
    Bytes,
    Stream,
}

fn start(way: Way, dir: Arc<Path>) -> Server {
    Server::start(move |listener| async move {
        let listener = TcpListener::from_std(listener)?;
        let limits = Limits::default().body(u64::MAX);
        let app = Router::new().layer(DefaultBodyLimit::disable());
        let app = match way {
            Way::Ours => {
                let service = tower::service_fn(move |request| ours(Arc::clone(&dir), request));
                return serve(listener, service).limits(limits).await;
            }
            Way::Bytes => app.route("/{name}", put(bytes)),
            Way::Stream => app.route("/{name}", put(stream)),
        };
        serve(listener, app.layer(DefaultBodyLimit::disable()).with_state(dir)).limits(limits).await
    })
}

struct Uploads<'a> {
    server: Server,
    dir: PathBuf,
    contents: &'a [u8],
    grown: u64,
}

impl Run for Uploads<'_> {
    fn run(&mut self, operations: u64) -> Spent {
        let mut spent = Spent::default();
        for _ in 0..operations {
            let before = reset_peak();
            let (start, cpu) = (Instant::now(), cpu_of_others());
            runtime().block_on(async {
                let uploads = (0..AT_ONCE).map(|n| upload(&self.server, n, self.contents));
                futures_util::future::join_all(uploads).await;
            });
            spent.cpu += cpu_of_others() - cpu;
            spent.wall += start.elapsed();
            self.grown = self.grown.max(status("VmHWM").saturating_sub(before));
            for n in 0..AT_ONCE {
                let path = self.dir.join(n.to_string());
                assert!(fs::read(&path).unwrap() == self.contents, "{}", path.display());
                // Before the disk has all of it.
                fs::remove_file(path).unwrap();
            }
        }
        spent
    }

    fn note(&mut self) -> String {
        format!("memory grows by {} KiB for each upload", self.grown / AT_ONCE as u64)
    }
}

async fn upload(server: &Server, n: usize, contents: &[u8]) {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let head =
        format!("PUT /{n} HTTP/1.1\r\nHost: mill\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", contents.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(contents).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with(&contents.len().to_string()), "{response}");
}

/// Makes the peak of the resident memory what it is now, in KiB, and returns it.
fn reset_peak() -> u64 {
    // proc_pid_clear_refs(5). Without it the peak is that of all turns before.
    let _ = fs::write("/proc/self/clear_refs", "5");
    status("VmRSS")
}

fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

pub(crate) fn run(suite: &mut Suite) {
    let len = options().pick(1 << 20, 20 << 20, 20 << 20);
    let title = format!("{AT_ONCE} uploads of {} MiB into files", len >> 20);
    if !suite.wants(&title) {
        return;
    }
    let contents = noise(len);
    // A directory of the build, because the one for temporary files may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let goals = [
        Goal { against: "axum Bytes, tokio::fs::write", by: By::Cpu, most: OF_BYTES },
        Goal { against: "axum stream, tokio::io::copy", by: By::Cpu, most: OF_STREAM },
    ];
    let units = ((AT_ONCE * len) >> 20) as u64;
    let case = Case { operations: Some(1), goals: &goals, ..Case::new(&title, "us per MiB", units) };
    suite.run(&case, || {
        let contender = |name, way| {
            let server = start(way, dir.path().into());
            let uploads = Uploads { server, dir: dir.path().to_owned(), contents: &contents, grown: 0 };
            Contender { name, run: Box::new(uploads) as Box<dyn Run> }
        };
        vec![
            contender("millstream body::save", Way::Ours),
            contender("axum stream, tokio::io::copy", Way::Stream),
            contender("axum Bytes, tokio::fs::write", Way::Bytes),
        ]
    });
}
