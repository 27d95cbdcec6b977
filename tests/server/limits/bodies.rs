//! The size of request bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::server::{BodyError, Limits, RequestBody, serve};

use super::{length, start, text};
use testkit::http::{Raw, boxed, on_both};

fn with_length(path: &str, len: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: mill\r\nContent-Length: {len}\r\n\r\n{}", "x".repeat(len))
}

fn chunked(path: &str, len: usize) -> String {
    let piece = |at: usize| 100.min(len - at);
    let pieces = (0..len).step_by(100).map(|at| format!("{:x}\r\n{}\r\n", piece(at), "x".repeat(piece(at))));
    let pieces: String = pieces.collect();
    format!("POST {path} HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n{pieces}0\r\n\r\n")
}

#[test]
fn a_body_may_have_so_many_bytes_unless_it_streams() {
    on_both(async || {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let service = tower::service_fn(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            length(request)
        });
        let limits = Limits::default().body(1000).streaming_requests(|head| head.uri.path() == "/stream");
        let addr = start(limits, service).await;
        for (request, status, called) in [
            (with_length("/", 1000), 200, 1),
            (with_length("/", 1001), 413, 1),
            (chunked("/", 1000), 200, 1),
            (chunked("/", 1001), 413, 1),
            (with_length("/stream", 5000), 200, 1),
            (chunked("/stream", 5000), 200, 1),
        ] {
            let before = calls.load(Ordering::Relaxed);
            let mut client = Raw::connect(addr).await;
            client.send(&request).await;
            let head = client.head().await;
            assert_eq!(head.status, status, "{}", &request[..50]);
            assert_eq!(calls.load(Ordering::Relaxed) - before, called, "calls of the service");
            if status == 200 {
                let _length = client.body(head.content_length()).await.unwrap();
                client.send(with_length("/", 3)).await;
                assert_eq!(client.head().await.status, 200, "the connection stays open");
            } else {
                assert_eq!(client.drain().await, b"", "the connection ends");
            }
        }
    });
}

#[test]
fn http2_bodies_have_the_same_limit_and_harm_no_other_stream() {
    on_both(async || {
        let addr = start(Limits::default().body(1000), tower::service_fn(length)).await;
        let io = TokioIo::new(tokio::net::TcpStream::connect(addr).await.unwrap());
        let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for (len, known, status) in
            [(1000, true, 200), (1001, true, 413), (1000, false, 200), (1001, false, 413), (5, true, 200)]
        {
            let body = Full::new(Bytes::from(vec![b'x'; len]));
            let body = match known {
                true => body.boxed(),
                false => StreamBody::new(futures_util::stream::iter(
                    (0..len).map(|_| Ok(Frame::data(Bytes::from_static(b"x")))),
                ))
                .boxed(),
            };
            let answer = client.send_request(Request::post("http://mill/").body(body).unwrap()).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{len}, known: {known}");
        }
    });
}

#[test]
fn a_service_is_told_why_a_body_ends_and_may_answer_itself() {
    on_both(async || {
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            let error = request.into_body().collect().await.unwrap_err();
            assert!(error.is_too_large(), "{error}");
            let mut answer = text(error.to_string());
            *answer.status_mut() = StatusCode::IM_A_TEAPOT;
            Ok::<_, BodyError>(answer)
        });
        let addr = start(Limits::default().body(10), service).await;
        let mut client = Raw::connect(addr).await;
        client.send(chunked("/", 11)).await;
        let head = client.head().await;
        assert_eq!(head.status, 418);
        assert_eq!(client.body(head.content_length()).await.unwrap(), b"the request body is larger than 10 bytes");
    });
}

#[test]
fn extractors_of_axum_answer_413() {
    on_both(async || {
        use axum::response::IntoResponse;
        use axum::routing::post;
        // Like axum's `Multipart`.
        let source = async |request: axum::extract::Request| {
            let error = request.into_body().collect().await.unwrap_err();
            match std::error::Error::source(&error) {
                Some(source) if source.is::<http_body_util::LengthLimitError>() => StatusCode::PAYLOAD_TOO_LARGE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            }
            .into_response()
        };
        let router = axum::Router::new()
            .route("/bytes", post(async |body: Bytes| body.len().to_string()))
            .route("/string", post(async |body: String| body.len().to_string()))
            .route("/source", post(source));
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let answered = tower::ServiceExt::oneshot(router.clone(), request);
            async { answered.await.map(|answer| answer.map(boxed)) }
        });
        let addr = start(Limits::default().body(1000), service).await;
        for path in ["/bytes", "/string", "/source"] {
            let mut client = Raw::connect(addr).await;
            client.send(chunked(path, 1001)).await;
            assert_eq!(client.head().await.status, 413, "{path}");
        }
    });
}

#[test]
fn the_smaller_of_two_limits_decides() {
    on_both(async || {
        let of_axum = axum::Router::new().route("/", axum::routing::post(async |body: Bytes| body.len().to_string()));
        let of_the_server = of_axum.clone().layer(axum::extract::DefaultBodyLimit::disable());
        for (router, longest) in [(of_axum, 2 << 20), (of_the_server, 3 << 20)] {
            let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, router).limits(Limits::default().body(3 << 20)).into_future());
            for (len, status) in [(longest, 200), (longest + 1, 413)] {
                let mut client = Raw::connect(addr).await;
                let head = "POST / HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n";
                client.send(format!("{head}{len:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(len))).await;
                assert_eq!(client.head().await.status, status, "{len} bytes");
            }
        }
    });
}
