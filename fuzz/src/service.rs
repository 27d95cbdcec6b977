//! The service behind the fuzzed servers: each way that a handler can treat a request, inside every layer that reads
//! what a client has sent.

use std::convert::Infallible;
use std::path::PathBuf;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use millstream::files::Files;
use millstream::middleware::{CompressLayer, Measure};
use millstream::server::{HttpService, RequestBody};
use millstream::sse::{Event, Hub};
use millstream_layers::{CanaryLayer, StampLayer};
use tower::{ServiceBuilder, service_fn};

use crate::{AnyBody, BoxError, boxed};

pub const GOOD: &[u8] = b"GET /good HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n";
pub const GOOD_BODY: &[u8] = b"good";

/// Creates a directory for a target, with a file for ranges and one that is long enough for `sendfile`.
pub fn directory() -> PathBuf {
    let dir = tempfile::Builder::new().prefix("millstream-fuzz-").tempdir().expect("a directory").keep();
    std::fs::write(dir.join("small.txt"), (0..1000).map(|n| (n % 251) as u8).collect::<Vec<_>>()).expect("a file");
    std::fs::write(dir.join("large.bin"), (0..300_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>())
        .expect("a file");
    dir
}

/// Returns the service. Answers to `HEAD` have the field `x-head`.
pub fn service() -> impl HttpService {
    let files = Files::builder(directory()).mounted_at("/f").listing(true).build().expect("a directory");
    let hub = Hub::builder().gzip(1).past_layers(true).build();
    for n in 0..4 {
        hub.send(Event::new().data(format!("event {n}"))).expect("an event");
    }
    let inner = service_fn(move |request: Request<RequestBody>| {
        let (files, hub) = (files.clone(), hub.clone());
        async move { Ok::<_, Infallible>(answer(files, hub, request).await) }
    });
    let canary = CanaryLayer::builder().token("0123456789abcdef").build().expect("a layer");
    let layers = ServiceBuilder::new()
        .layer(Measure::new())
        .layer(StampLayer::new())
        .layer(canary)
        .layer(CompressLayer::new().min_size(1));
    layers.service(inner)
}

async fn answer(files: Files, hub: Hub, request: Request<RequestBody>) -> Response<AnyBody> {
    let is_head = request.method() == Method::HEAD;
    let mut response = match request.uri().path() {
        _ if request.method() == Method::CONNECT => status(StatusCode::NOT_IMPLEMENTED),
        path if path.starts_with("/f") => {
            let response = files.get(request.method(), request.uri(), request.headers()).await;
            response.map(boxed)
        }
        // The body as it comes.
        "/echo" => Response::new(boxed(request.into_body())),
        // Answers once the body is read.
        "/read" => match request.into_body().collect().await {
            Ok(body) => Response::new(boxed(Full::from(body.to_bytes().len().to_string()))),
            Err(_) => status(StatusCode::BAD_REQUEST),
        },
        // A body of unknown length that is pending first, so that the server takes the connection over.
        "/stream" => Response::new(boxed(StreamBody::new(stream::unfold(0, |n| async move {
            tokio::task::yield_now().await;
            let frame = match n {
                0..3 => Frame::data(Bytes::from_static(b"a token\n")),
                3 => {
                    Frame::trailers(std::iter::once((http::header::ETAG, HeaderValue::from_static("\"t\""))).collect())
                }
                _ => return None,
            };
            Some((Ok::<_, BoxError>(frame), n + 1))
        })))),
        "/events" => hub.subscribe(&request).map(boxed),
        "/none" => status(StatusCode::NO_CONTENT),
        _ => Response::new(boxed(Full::from(GOOD_BODY))),
    };
    if is_head {
        response.headers_mut().insert("x-head", HeaderValue::from_static("1"));
    }
    response
}

fn status(status: StatusCode) -> Response<AnyBody> {
    let mut response = Response::new(boxed(Empty::new()));
    *response.status_mut() = status;
    response
}
