//! What hyper makes of the responses: the bytes on the wire.

use super::*;
use std::convert::Infallible;
use std::time::Duration;

use http::Method;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A connection to a server of `files`.
fn serve(files: &Files) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let files = files.clone();
    tokio::spawn(async move {
        let service = service_fn(move |request: Request<Incoming>| files.clone().call(request));
        let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        // Bodies that fail end it with an error, which is what they are for.
        let _ = builder.serve_connection(TokioIo::new(theirs), service).await;
    });
    ours
}

/// Sends a request by hand and reads until the server closes.
async fn talk(files: &Files, request: &str) -> (String, Vec<u8>) {
    let mut stream = serve(files);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut all));
    // A connection that is broken off may also end in an error.
    let _ = end.await.expect("the server closes");
    let head = all.windows(4).position(|w| w == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
    let body = all.split_off(head);
    (String::from_utf8(all).unwrap(), body)
}

#[tokio::test]
async fn over_http_1_a_head_has_the_length_of_the_get() {
    let dir = dir(&[("f.txt", &pattern(100_000)), ("empty", b"")]);
    let files = Files::new(dir.path()).unwrap();
    let (head, body) = talk(&files, "GET /f.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 100000\r\n"), "{head}");
    assert!(body == pattern(100_000));
    for (name, len) in [("f.txt", 100_000), ("empty", 0)] {
        let request = format!("HEAD /{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let (head, body) = talk(&files, &request).await;
        assert!(head.contains(&format!("content-length: {len}\r\n")), "{head}");
        assert!(body.is_empty() && !head.contains("transfer-encoding"), "{head}");
    }
    let known = "GET /f.txt HTTP/1.1\r\nHost: x\r\nIf-None-Match: *\r\nConnection: close\r\n\r\n";
    let (head, body) = talk(&files, known).await;
    assert!(head.starts_with("HTTP/1.1 304 ") && !head.contains("content-length"), "{head}");
    assert!(body.is_empty());
}

#[tokio::test]
async fn over_http_2_heads_and_ranges_have_their_lengths() {
    let dir = dir(&[("f.txt", &pattern(100_000))]);
    let files = Files::new(dir.path()).unwrap();
    let io = TokioIo::new(serve(&files));
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    for (method, range, len) in [(Method::GET, "", 100_000), (Method::GET, "bytes=5-9", 5), (Method::HEAD, "", 100_000)]
    {
        let request = Request::builder().method(&method).uri("http://x/f.txt").header("range", range);
        let response = client.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!(header(&response, "content-length"), len.to_string(), "{method} {range}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len(), if method == Method::HEAD { 0 } else { len });
    }
}

#[tokio::test]
async fn a_file_that_shrinks_breaks_the_connection_off() {
    let len = 8 << 20;
    for kept in [0, 64 << 20] {
        let dir = dir(&[("f", &pattern(len))]);
        let files = Files::builder(dir.path()).kept_bytes(kept).build().unwrap();
        let mut stream = serve(&files);
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut first = [0; 1000];
        stream.read_exact(&mut first).await.unwrap();
        // The socket holds far less than what is cut off.
        let file = std::fs::File::options().write(true).open(dir.path().join("f")).unwrap();
        file.set_len(1 << 20).unwrap();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest));
        let _ = end.await.expect("the server closes");
        assert!(rest.len() < len, "{} bytes of a file that has no more than 1 MiB", rest.len());
    }
}

#[tokio::test]
async fn a_small_kept_file_that_lost_its_pages_breaks_the_connection_off() {
    let dir = dir(&[("f", &pattern(20_000))]);
    let files = Files::builder(dir.path()).validate_every(Duration::from_secs(3600)).build().unwrap();
    // The response is there, its body is not yet read: the moment between is as short as can be in a server.
    let response = send(&files, "GET", "/f", &[]).await;
    std::fs::File::options().write(true).open(dir.path().join("f")).unwrap().set_len(0).unwrap();
    let response = std::sync::Mutex::new(Some(response));
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let service = service_fn(move |_: Request<Incoming>| {
        let response = response.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(response) }
    });
    let server = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(theirs), service);
    ours.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(server.await.is_err(), "the kernel refuses to send what is not there");
    let mut all = Vec::new();
    let _ = ours.read_to_end(&mut all).await;
    assert!(all.len() < 20_000);
}
