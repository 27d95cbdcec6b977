//! The bytes that hyper sends for responses.

use super::*;
use std::convert::Infallible;
use std::time::Duration;

use http::Method;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

/// Streams that hyper writes to.
#[derive(Clone, Copy, Debug)]
enum Streams {
    /// tokio's streams, which read the bodies' memory.
    Stock,
    /// Our streams, which recognise files in that memory.
    Ours,
}

const BOTH: [Streams; 2] = [Streams::Stock, Streams::Ours];

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// Returns a connection to a server of `files`.
async fn connect(streams: Streams, files: &Files) -> Box<dyn Wire> {
    let files = files.clone();
    match streams {
        Streams::Stock => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            tokio::spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| files.clone().call(request));
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                // A failing body is expected to end the connection with an error.
                let _ = builder.serve_connection(TokioIo::new(theirs), service).await;
            });
            Box::new(ours)
        }
        Streams::Ours => {
            let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(millstream::server::serve(listener, files).into_future());
            Box::new(tokio::net::TcpStream::connect(addr).await.unwrap())
        }
    }
}

/// Sends a raw request and reads until the server closes.
async fn talk(streams: Streams, files: &Files, request: &str) -> (String, Vec<u8>) {
    let mut stream = connect(streams, files).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut all));
    // An aborted connection may also end in an error.
    let _ = end.await.expect("the server closes");
    let head = all.windows(4).position(|w| w == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
    let body = all.split_off(head);
    (String::from_utf8(all).unwrap(), body)
}

#[tokio::test]
async fn over_http_1_a_head_has_the_length_of_the_get() {
    let dir = dir(&[("f.txt", &noise(100_000)), ("empty", b"")]);
    let files = Files::new(dir.path()).unwrap();
    for streams in BOTH {
        let (head, body) = talk(streams, &files, "GET /f.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 100000\r\n"), "{head}");
        assert!(body == noise(100_000));
        for (name, len) in [("f.txt", 100_000), ("empty", 0)] {
            let request = format!("HEAD /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let (head, body) = talk(streams, &files, &request).await;
            assert!(head.contains(&format!("content-length: {len}\r\n")), "{head}");
            assert!(body.is_empty() && !head.contains("transfer-encoding"), "{head}");
        }
        let known = "GET /f.txt HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\nConnection: close\r\n\r\n";
        let (head, body) = talk(streams, &files, known).await;
        assert!(head.starts_with("HTTP/1.1 304 ") && !head.contains("content-length"), "{head}");
        assert!(body.is_empty());
    }
}

#[tokio::test]
async fn over_http_2_heads_and_ranges_have_their_lengths() {
    let dir = dir(&[("f.txt", &noise(100_000))]);
    let files = Files::new(dir.path()).unwrap();
    for streams in BOTH {
        let io = TokioIo::new(connect(streams, &files).await);
        let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for (method, range, len) in
            [(Method::GET, "", 100_000), (Method::GET, "bytes=5-9", 5), (Method::HEAD, "", 100_000)]
        {
            let request = Request::builder().method(&method).uri("http://x/f.txt").header("range", range);
            let response = client.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
            assert_eq!(header(&response, "content-length"), len.to_string(), "{method} {range}");
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(bytes.len(), if method == Method::HEAD { 0 } else { len });
        }
    }
}

#[tokio::test]
async fn every_size_arrives_whole() {
    for kept in [0, 64 << 20] {
        let dir = dir(&[]);
        let files = Files::builder(dir.path()).kept_bytes(kept).build().unwrap();
        for len in [1, 5000, 20_000, 100_000, 300_000, (9 << 20) + 1] {
            write(dir.path(), &len.to_string(), &noise(len));
            for streams in BOTH {
                let request = format!("GET /{len} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
                let (head, body) = talk(streams, &files, &request).await;
                assert!(head.contains(&format!("content-length: {len}\r\n")), "{head}");
                assert!(body == noise(len), "{len} bytes over {streams:?}, {kept} kept");
            }
        }
    }
}

#[tokio::test]
async fn a_large_file_does_not_enter_the_process() {
    let caps = millstream::Capabilities::get();
    if !caps.mapping().is_yes() || !caps.sendfile().is_yes() {
        return; // Then there is no other path.
    }
    let dir = dir(&[("f", &noise(9 << 20))]);
    let files = Files::new(dir.path()).unwrap();
    let before = millstream::metrics::Snapshot::now();
    let request = "GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let (_, body) = talk(Streams::Ours, &files, request).await;
    assert!(body == noise(9 << 20));
    let sent = millstream::metrics::Snapshot::now().since(&before).bytes_by_sendfile;
    // A full socket may leave short rests of a piece, and short pieces are copied.
    assert!(sent >= 8 << 20, "{sent} bytes by sendfile");
}

#[tokio::test]
async fn a_file_that_shrinks_breaks_the_connection_off() {
    let len = 32 << 20;
    for streams in BOTH {
        for kept in [0, 64 << 20] {
            let dir = dir(&[("f", &noise(len))]);
            let files = Files::builder(dir.path()).kept_bytes(kept).build().unwrap();
            let mut stream = connect(streams, &files).await;
            stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            let mut first = [0; 1000];
            stream.read_exact(&mut first).await.unwrap();
            // The sockets hold far less than the truncated part.
            let file = std::fs::File::options().write(true).open(dir.path().join("f")).unwrap();
            file.set_len(1 << 20).unwrap();
            let mut rest = Vec::new();
            let end = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest));
            let _ = end.await.expect("the server closes");
            assert!(rest.len() < len, "{} bytes over {streams:?} of a file that has no more than 1 MiB", rest.len());
        }
    }
}

/// The shortest window in a server: the response exists, but its body is not yet read.
#[tokio::test]
async fn a_kept_file_that_lost_its_pages_breaks_the_connection_off() {
    for streams in BOTH {
        let dir = dir(&[("f", &noise(20_000))]);
        let files = Files::builder(dir.path()).validate_every(Duration::from_secs(3600)).build().unwrap();
        let response = send(&files, "GET", "/f", &[]).await;
        std::fs::File::options().write(true).open(dir.path().join("f")).unwrap().set_len(0).unwrap();
        let response = std::sync::Mutex::new(Some(response));
        let service = service_fn(move |_: Request<Incoming>| {
            let response = response.lock().unwrap().take().unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        let builder = hyper::server::conn::http1::Builder::new();
        let request = b"GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let mut all = Vec::new();
        let served = match streams {
            Streams::Stock => {
                let (mut ours, theirs) = UnixStream::pair().unwrap();
                ours.write_all(request).await.unwrap();
                let served = builder.serve_connection(TokioIo::new(theirs), service).await;
                let _ = ours.read_to_end(&mut all).await;
                served
            }
            Streams::Ours => {
                let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let mut ours = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                ours.write_all(request).await.unwrap();
                let (theirs, _) = listener.accept().await.unwrap();
                let served = builder.serve_connection(theirs, service).await;
                let _ = ours.read_to_end(&mut all).await;
                served
            }
        };
        assert!(served.is_err(), "{streams:?}: the kernel does not send what is not there");
        assert!(all.len() < 20_000, "{streams:?}");
    }
}
