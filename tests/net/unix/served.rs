//! Unix streams under our server, and files over them.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use millstream::body::FileBody;
use millstream::fs::File;
use millstream::metrics::Snapshot;
use millstream::server::RequestBody;
use testkit::http::{Flavour, Raw, boxed, on_both, pages, sha256};
use testkit::serving::serve;
use testkit::{alone, counted_since, lacks, noise};

use super::*;

#[test]
fn files_go_by_sendfile_through_a_narrow_socket() {
    const LEN: usize = 3 << 20;
    on_both(async || {
        let (dir, path) = name();
        let file = dir.path().join("file");
        std::fs::write(&file, pages(LEN)).unwrap();
        let listener = UnixListener::bind(&path).await.unwrap();
        let opened = File::open(&file).await.unwrap();
        let service = tower::service_fn(move |_: Request<RequestBody>| {
            let body = boxed(FileBody::new(&opened, ..).unwrap());
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let server = tokio::spawn(serve(listener, service).into_future());
        let before = Snapshot::now();
        for buffer in [0, 4096] {
            let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
            if buffer > 0 {
                SockRef::from(&stream).set_recv_buffer_size(buffer).unwrap();
            }
            let mut client = Raw::over(stream);
            for _ in 0..2 {
                let (status, body) = client.get("/").await;
                assert_eq!((status, sha256(body)), (200, sha256(pages(LEN))));
            }
        }
        if !lacks("sendfile") && !lacks("mapping") {
            // A client has the last bytes before they are counted.
            counted_since(&before, |counted| counted.bytes_by_sendfile >= 4 * LEN as u64).await;
        }
        server.abort();
        let _ = server.await;
        assert!(!path.exists(), "the listener removes its file");
    });
}

#[test]
fn a_file_that_shrinks_fails_the_stream_and_ends_it_short() {
    if lacks("mapping") {
        return;
    }
    const LEN: usize = 1 << 20;
    on_both(async || {
        let (dir, _) = name();
        let file = dir.path().join("file");
        std::fs::write(&file, pages(LEN)).unwrap();
        let opened = File::open(&file).await.unwrap();
        let frame: Bytes = FileBody::new(&opened, ..).unwrap().frame().await.unwrap().unwrap().into_data().unwrap();
        let (mut ours, mut theirs) = <UnixStream as Family>::pair().await;
        std::fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
        let error = ours.write_all(&frame).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.unwrap();
        assert!(got.is_empty(), "no zeros instead of the file");
    });
}

#[test]
fn no_descriptor_is_left_behind() {
    if alone::ran_in_child() {
        return;
    }
    let links = || std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let fds = || links().count();
    // Rings are created on first use and stay open.
    let is_socket =
        |path: PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    let sockets = || links().filter(|link| is_socket(link.path())).count();
    for flavour in Flavour::BOTH {
        drop(flavour.runtime());
        let before = fds();
        let runtime = flavour.runtime();
        runtime.block_on(async {
            let (_dir, path) = name();
            let listener = UnixListener::bind(&path).await.unwrap();
            let hello = tower::service_fn(async |_: Request<RequestBody>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(noise(100_000)))))
            });
            let server = tokio::spawn(serve(listener, hello).into_future());
            let idle = sockets();
            for n in 0..200 {
                let mut client = Raw::over(tokio::net::UnixStream::connect(&path).await.unwrap());
                match n % 4 {
                    0 => drop(client),
                    1 => client.ask("/").await,
                    2 => assert_eq!(client.get("/").await.1.len(), 100_000),
                    _ => {
                        client.ask("/").await;
                        client.head().await;
                        client.io.shutdown().await.unwrap();
                    }
                }
            }
            for fail in 0.. {
                assert!(fail < 1000, "{} sockets, {idle} without a connection", sockets());
                if sockets() == idle {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.abort();
        });
        drop(runtime);
        assert_eq!(fds(), before, "on {flavour:?}");
    }
}

#[cfg(feature = "axum-08")]
#[tokio::test]
async fn axum_serves_it() {
    let (_dir, path) = name();
    let listener = UnixListener::bind(&path).await.unwrap();
    let app = axum::Router::new().route("/hello", axum::routing::get(async || "hello"));
    tokio::spawn(axum::serve(listener, app).into_future());
    let mut client = Raw::over(tokio::net::UnixStream::connect(&path).await.unwrap());
    assert_eq!(client.get("/hello").await, (200, b"hello".to_vec()));
}
