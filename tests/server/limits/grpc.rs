//! gRPC calls: limits appear as gRPC statuses.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::uri::PathAndQuery;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::server::{Limits, RequestBody};
use tonic::server::ClientStreamingService;
use tonic::transport::Endpoint;
use tonic::{Code, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{length, start};
use testkit::http::{BoxError, boxed, on_both};

const UPLOAD: &str = "/mill.Files/Upload";
const PIECE: usize = 100_000;

struct Upload;

impl ClientStreamingService<Vec<u8>> for Upload {
    type Response = u64;
    type Future = Pin<Box<dyn Future<Output = Result<Response<u64>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<Vec<u8>>>) -> Self::Future {
        Box::pin(async {
            let (mut pieces, mut sum) = (request.into_inner(), 0);
            while let Some(piece) = pieces.message().await? {
                sum += piece.len() as u64;
            }
            Ok(Response::new(sum))
        })
    }
}

async fn serve_upload(limits: Limits) -> SocketAddr {
    let service = tower::service_fn(async |request: Request<RequestBody>| {
        let mut grpc = tonic::server::Grpc::new(ProstCodec::<u64, Vec<u8>>::default());
        Ok::<_, BoxError>(grpc.client_streaming(Upload, request).await.map(boxed))
    });
    start(limits, service).await
}

async fn upload(addr: SocketAddr, pieces: usize, pause: Duration) -> Result<u64, Status> {
    let channel = Endpoint::from_shared(format!("http://{addr}")).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let end = stream::once(tokio::time::sleep(pause)).filter_map(async |()| None);
    let pieces = stream::iter((0..pieces).map(|_| vec![7; PIECE])).chain(Box::pin(end));
    let codec = ProstCodec::<Vec<u8>, u64>::default();
    let answer = grpc.client_streaming(tonic::Request::new(pieces), PathAndQuery::from_static(UPLOAD), codec).await?;
    Ok(answer.into_inner())
}

#[test]
fn calls_stream_and_what_does_not_is_resource_exhausted_over_the_limit() {
    on_both(async || {
        let none = Duration::ZERO;
        let limited = Limits::default().body(2 << 20);
        assert_eq!(upload(serve_upload(limited.clone()).await, 30, none).await.unwrap(), 3_000_000);
        let addr = serve_upload(limited.clone().streaming_requests(|_| false)).await;
        assert_eq!(upload(addr, 20, none).await.unwrap(), 2_000_000);
        let status = upload(addr, 30, none).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::ResourceExhausted, "the request body is larger than 2097152 bytes")
        );
        let streaming = limited.streaming_requests(|head| head.uri.path().starts_with("/mill.Files/"));
        assert_eq!(upload(serve_upload(streaming).await, 300, none).await.unwrap(), 30_000_000);
        let hasty = Limits::default().body_progress(Duration::from_millis(300));
        let status = upload(serve_upload(hasty).await, 1, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    });
}

#[test]
fn what_the_server_refuses_itself_has_a_status_of_grpc() {
    on_both(async || {
        // A service without gRPC support that fails with the error of the body.
        let limits = Limits::default().body(1000).streaming_requests(|_| false);
        let addr = start(limits, tower::service_fn(length)).await;
        let io = TokioIo::new(tokio::net::TcpStream::connect(addr).await.unwrap());
        let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for (kind, announced, expected) in [
            ("application/grpc", true, (200, Some("8"))),
            ("application/grpc+proto", false, (200, Some("8"))),
            ("application/grpc-web", true, (413, None)),
            ("text/plain", false, (413, None)),
        ] {
            let body = Full::new(Bytes::from(vec![7; 1001]));
            let body = if announced { body.boxed() } else { body.with_trailers(std::future::pending()).boxed() };
            let request = Request::post("http://mill/").header("content-type", kind).body(body).unwrap();
            let answer = client.send_request(request).await.unwrap();
            let code = answer.headers().get("grpc-status").map(|code| code.to_str().unwrap());
            assert_eq!((answer.status().as_u16(), code), expected, "{kind}, announced: {announced}");
        }
    });
}
