//! `body::save` behind our server, and without one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use millstream::body::{Save, SaveError};
use millstream::fs::Durability;
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody};

use testkit::http::{Answer, boxed};
use testkit::report::report;
use testkit::serving::serve;

mod digests;
mod ends;
mod faults;
mod wire;

/// The length from which on a body takes several jobs.
const JOB: usize = 448 << 10;

/// Options of a [`Save`] from the query of a request: `max`, `at`, `new`, `verify`.
fn save_of(dir: &Path, request: &Request<RequestBody>) -> Save {
    let query = request.uri().query().unwrap_or_default();
    let query: HashMap<_, _> = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    let number = |name| query.get(name).map(|value| value.parse::<u64>().unwrap());
    let mut save = Save::new(dir.join(&request.uri().path()[1..])).durability(Durability::None);
    if let Some(max) = number("max") {
        save = save.max_len(max);
    }
    if let Some(at) = number("at") {
        save = save.continue_at(at);
    }
    if query.contains_key("new") {
        save = save.create_new();
    }
    if query.contains_key("verify") {
        save = save.verify(request.headers());
    }
    save.sha256()
}

/// Answers with the length and digest of what was saved, or with the error.
async fn answer(dir: PathBuf, request: Request<RequestBody>) -> Answer {
    let save = save_of(&dir, &request);
    let (status, text) = match save.run(request.into_body()).await {
        Ok(saved) => {
            let digest: String = saved.sha256.unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
            (200, format!("{} {} {digest} {}", saved.len, saved.file_len, saved.verified))
        }
        Err(e) => (e.status().as_u16(), describe(&e)),
    };
    Response::builder().status(status).body(boxed(Full::new(Bytes::from(text)))).unwrap()
}

fn describe(error: &SaveError) -> String {
    format!("{:?} {}", error.file_len(), report(error))
}

/// Serves `dir` until the runtime ends.
async fn start(dir: &Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let dir = dir.to_owned();
    let service = tower::service_fn(move |request| {
        let answer = answer(dir.clone(), request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    tokio::spawn(serve(listener, service).limits(limits()).into_future());
    addr
}

/// No limit of a body in time: clients here wait for each other.
fn limits() -> Limits {
    Limits::default().body(u64::MAX).body_progress(Duration::MAX)
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    testkit::http::sha256(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names in `dir`, and open descriptors of files in it.
fn left(dir: &Path) -> (Vec<String>, usize) {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
    (names, open.filter(|file| file.starts_with(dir)).count())
}

/// Waits until `dir` has only these names, and nothing of it is open.
#[track_caller]
fn only<'a>(dir: &'a Path, names: &'a [&str]) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let start = std::time::Instant::now();
        while left(dir) != (names.iter().map(|&name| name.to_owned()).collect(), 0) {
            assert!(start.elapsed() < testkit::HANGS, "{caller}: {:?}, expected {names:?}", left(dir));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Asserts the contents of a file without printing megabytes on a mismatch.
#[track_caller]
fn holds(path: &Path, expected: &[u8]) {
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes == expected, "{}: {} bytes, expected {} others", path.display(), bytes.len(), expected.len());
}

#[track_caller]
fn io_kind(error: &SaveError) -> std::io::ErrorKind {
    error.source().unwrap().downcast_ref::<millstream::fs::Error>().unwrap().kind()
}
