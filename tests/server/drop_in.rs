//! One axum app under `axum::serve` and under `serve` gives the same answers to odd requests. Differences are on the page
//! `docs/guide/from-axum.md`.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, Multipart, Request};
use axum::http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::response::Response;
use axum::routing::{any, get, post};
use axum::{Json, Router};
use futures_util::stream;
use millstream::server::serve;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use testkit::HANGS;
use testkit::http::{on_both, without_dates};

/// The limit of axum's extractors.
const EXTRACTED: usize = 2 << 20;

fn app() -> Router {
    let bytes = async |body: Bytes| body.len().to_string();
    let streamed = || {
        let pieces = ["one, ", "two, ", "three"].map(Ok::<_, std::convert::Infallible>);
        Body::from_stream(stream::iter(pieces))
    };
    let seen = async |method: Method, uri: Uri, version: Version| format!("{method} {uri} {version:?}");
    let add_cors = async |mut response: Response| {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        response
    };
    Router::new()
        .route("/", get(async || "hello"))
        .route("/seen", any(seen))
        .route("/none", get(async || StatusCode::NO_CONTENT))
        .route("/stream", get(async move || streamed()))
        .route("/bytes", post(bytes))
        .route("/string", post(async |body: String| body.len().to_string()))
        .route("/json", post(async |Json(body): Json<serde_json::Value>| body.to_string()))
        .route("/multipart", post(fields))
        .route("/ignored", post(async || "ignored"))
        .route("/raised", post(bytes).layer(DefaultBodyLimit::max(2 * EXTRACTED)))
        .route("/raised/multipart", post(fields).layer(DefaultBodyLimit::max(2 * EXTRACTED)))
        .route("/unlimited", post(bytes).layer(DefaultBodyLimit::disable()))
        .route("/lowered", post(bytes).layer(DefaultBodyLimit::max(10)))
        .route("/piped", post(async |request: Request| Body::new(request.into_body())))
        .layer(axum::middleware::map_response(add_cors))
}

async fn fields(mut form: Multipart) -> Result<String, MultipartError> {
    let mut len = 0;
    while let Some(field) = form.next_field().await? {
        len += field.bytes().await?.len();
    }
    Ok(len.to_string())
}

/// Follows a request. It is answered by a server that keeps the connection open, which closes it then.
const LAST: &str = "GET /?last HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunked,
}

fn post_to(path: &str, kind: &str, body: &str, framing: Framing) -> String {
    let framed = match framing {
        Framing::Length => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        Framing::Chunked => {
            let chunks = body
                .as_bytes()
                .chunks(10_000)
                .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)));
            format!("Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunks.collect::<String>())
        }
    };
    format!("POST {path} HTTP/1.1\r\nHost: mill\r\nContent-Type: {kind}\r\n{framed}")
}

fn form(len: usize) -> String {
    let head = "--edge\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a\"\r\n\r\n";
    format!("{head}{}\r\n--edge--\r\n", "x".repeat(len))
}

/// Requests by name.
fn requests() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW", "get"] {
        for path in ["/", "/seen", "/none", "/stream", "/missing"] {
            all.push((format!("{method} {path}"), format!("{method} {path} HTTP/1.1\r\nHost: mill\r\n\r\n")));
        }
    }
    for framing in [Framing::Length, Framing::Chunked] {
        let by = if framing == Framing::Length { "with a length" } else { "chunked" };
        for (path, kind) in [
            ("/bytes", "text/plain"),
            ("/string", "text/plain"),
            ("/raised", "text/plain"),
            ("/unlimited", "text/plain"),
            ("/lowered", "text/plain"),
        ] {
            for len in [0, 10, 11, EXTRACTED, EXTRACTED + 1, 2 * EXTRACTED, 2 * EXTRACTED + 1] {
                all.push((format!("{path}, {len} bytes {by}"), post_to(path, kind, &"x".repeat(len), framing)));
            }
        }
        for path in ["/multipart", "/raised/multipart"] {
            for len in [0, 10, EXTRACTED + 1, 2 * EXTRACTED + 1] {
                let request = post_to(path, "multipart/form-data; boundary=edge", &form(len), framing);
                all.push((format!("{path}, {len} bytes {by}"), request));
            }
        }
        for (name, body) in [("valid", "{\"a\": [1, 2]}"), ("invalid", "{"), ("empty", "")] {
            all.push((format!("/json, {name} {by}"), post_to("/json", "application/json", body, framing)));
        }
        // Longer ones come in chunks as they are read.
        all.push((format!("/piped {by}"), post_to("/piped", "text/plain", "piped", framing)));
        all.push((format!("/json without its type {by}"), post_to("/json", "text/plain", "{}", framing)));
        all.push((format!("/ignored {by}"), post_to("/ignored", "text/plain", "ignored", framing)));
    }
    let odd = [
        ("HTTP/1.0", "GET / HTTP/1.0\r\nHost: mill\r\n\r\n"),
        ("HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n"),
        ("HTTP/1.0 kept alive", "GET / HTTP/1.0\r\nHost: mill\r\nConnection: keep-alive\r\n\r\n"),
        ("a stream to HTTP/1.0", "GET /stream HTTP/1.0\r\nHost: mill\r\n\r\n"),
        ("HTTP/1.2", "GET / HTTP/1.2\r\nHost: mill\r\n\r\n"),
        ("HTTP/3", "GET / HTTP/3\r\nHost: mill\r\n\r\n"),
        ("HTTP/0.9", "GET /\r\n\r\n"),
        ("closed", "GET / HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n"),
        ("closed, in capitals", "GET / HTTP/1.1\r\nHost: mill\r\nConnection: CLOSE\r\n\r\n"),
        ("an absolute target", "GET http://mill/seen HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("an absolute target of another host", "GET http://other/seen HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("CONNECT", "CONNECT mill:80 HTTP/1.1\r\nHost: mill:80\r\n\r\n"),
        ("TRACE", "TRACE / HTTP/1.1\r\nHost: mill\r\n\r\n"),
        (
            "an upgrade to h2c",
            "GET / HTTP/1.1\r\nHost: mill\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        ),
        (
            "an upgrade nobody takes",
            "GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ),
        (
            "an expectation",
            "POST /bytes HTTP/1.1\r\nHost: mill\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        ),
        (
            "an expectation that is ignored",
            "POST /ignored HTTP/1.1\r\nHost: mill\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            "an unknown expectation",
            "POST /bytes HTTP/1.1\r\nHost: mill\r\nExpect: more\r\nContent-Length: 5\r\n\r\nhello",
        ),
        ("two at once", "GET / HTTP/1.1\r\nHost: mill\r\n\r\nGET /stream HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("empty lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("lines that end with LF", "GET / HTTP/1.1\nHost: mill\n\n"),
        (
            "the same length twice",
            "POST /bytes HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        ),
        ("two lengths", "POST /bytes HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
        ("a negative length", "POST /bytes HTTP/1.1\r\nHost: mill\r\nContent-Length: -5\r\n\r\nhello"),
        (
            "a length and chunks",
            "POST /bytes HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "a chunk with an extension",
            "POST /bytes HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "a trailer",
            "POST /bytes HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
        ),
        ("a chunk without a size", "POST /bytes HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n"),
        ("an unknown coding", "POST /bytes HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: gzip\r\n\r\nhello"),
        ("a folded field", "GET / HTTP/1.1\r\nHost: mill\r\nX: a\r\n b\r\n\r\n"),
        ("a NUL in a field", "GET / HTTP/1.1\r\nHost: mill\r\nX: a\0b\r\n\r\n"),
        ("a field without a name", "GET / HTTP/1.1\r\nHost: mill\r\n: a\r\n\r\n"),
        ("a space before a colon", "GET / HTTP/1.1\r\nHost : mill\r\n\r\n"),
        ("a space in the target", "GET /a b HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("an encoded path", "GET /s%65en?a=%20&b=%C3%A4 HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("a fragment", "GET /seen#a HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("two slashes", "GET //seen HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("a path with dots", "GET /a/../seen HTTP/1.1\r\nHost: mill\r\n\r\n"),
        ("bytes that are no request", "\x16\x03\x01\x02\0"),
        ("no Host", "GET / HTTP/1.1\r\n\r\n"),
        ("two Hosts", "GET / HTTP/1.1\r\nHost: mill\r\nHost: mill\r\n\r\n"),
        ("an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        ("an invalid Host", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ];
    all.extend(odd.map(|(name, request)| (name.to_owned(), request.to_owned())));
    let with = |fields: &str| format!("GET / HTTP/1.1\r\nHost: mill\r\n{fields}\r\n");
    let fields = |count: usize| with(&(0..count).map(|n| format!("X-{n}: a\r\n")).collect::<String>());
    all.push(("100 fields".to_owned(), fields(99)));
    all.push(("101 fields".to_owned(), fields(100)));
    all.push(("a field of 8 KiB".to_owned(), with(&format!("X: {}\r\n", "x".repeat(8 << 10)))));
    all.push(("a field of 20 KiB".to_owned(), with(&format!("X: {}\r\n", "x".repeat(20 << 10)))));
    let long = |len: usize| format!("GET /?{} HTTP/1.1\r\nHost: mill\r\n\r\n", "x".repeat(len));
    all.push(("a target of 8000 bytes".to_owned(), long(8_000)));
    all.push(("a target of 9000 bytes".to_owned(), long(9_000)));
    all
}

/// Names of the requests that are answered differently, and the sentence of the page that says so.
const DIFFERENT: [(&str, &str); 5] = [
    ("no Host", "Requests of HTTP/1.1 without exactly one valid `Host`"),
    ("two Hosts", "Requests of HTTP/1.1 without exactly one valid `Host`"),
    ("an invalid Host", "Requests of HTTP/1.1 without exactly one valid `Host`"),
    ("a field of 20 KiB", "A head of more than 16 KiB"),
    ("a target of 9000 bytes", "A path and query of more than 8 KiB"),
];

/// Returns everything that the server sends, without dates.
async fn answers(addr: SocketAddr, request: &str) -> String {
    let (mut read, mut write) = TcpStream::connect(addr).await.unwrap().into_split();
    let sent = async {
        // A server may close the connection before it has read everything.
        let _ = write.write_all(request.as_bytes()).await;
        let _ = write.write_all(LAST.as_bytes()).await;
    };
    let mut received = Vec::new();
    let got = async {
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = read.read(&mut piece).await {
            received.extend_from_slice(&piece[..len]);
        }
    };
    timeout(HANGS, async { tokio::join!(sent, got) }).await.unwrap_or_else(|_| panic!("hangs: {request:.80}"));
    String::from_utf8_lossy(&without_dates(received)).into_owned()
}

#[test]
fn an_app_answers_as_under_axum_serve() {
    on_both(async || {
        let theirs = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (of_axum, of_ours) = (theirs.local_addr().unwrap(), ours.local_addr().unwrap());
        tokio::spawn(axum::serve(theirs, app()).into_future());
        tokio::spawn(serve(ours, app()).into_future());
        let mut found = Vec::new();
        for (name, request) in requests() {
            let (expected, got) = (answers(of_axum, &request).await, answers(of_ours, &request).await);
            if got != expected {
                println!("{name}\n  axum: {expected:?}\n  ours: {got:?}");
                found.push(name);
            }
        }
        found.sort_unstable();
        let mut expected = DIFFERENT.map(|(name, _)| name.to_owned());
        expected.sort_unstable();
        assert_eq!(found, expected, "left: found; right: on the page");
    });
}

#[test]
fn the_page_says_what_differs() {
    let page = include_str!("../../docs/guide/from-axum.md");
    let lost: Vec<_> = DIFFERENT.iter().filter(|(_, sentence)| !page.contains(sentence)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
