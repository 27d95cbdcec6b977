//! Endless responses of frameworks end in order when the server drains.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;

use axum::Router;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use futures_util::{Stream, StreamExt, stream};
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use hyper::Request;
use millstream::net::TcpListener;
use millstream::server::{Drained, HttpService, RequestBody, serve, until_drain};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::server::ServerStreamingService;
use tonic::transport::Endpoint;
use tonic::{Code, Response, Status};
use tonic_prost::ProstCodec;
use tower::ServiceExt;
use tower::util::MapResponseLayer;

use testkit::HANGS;
use testkit::http::{BoxError, h1, h2, on_both, request};

struct Server {
    addr: SocketAddr,
    signal: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<Drained>>,
}

impl Server {
    async fn start(service: impl HttpService) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (signal, signalled) = oneshot::channel::<()>();
        Self { addr, signal, ended: tokio::spawn(serve(listener, service).drain(signalled, HANGS)) }
    }

    async fn drain(self) -> Drained {
        self.signal.send(()).unwrap();
        timeout(HANGS, self.ended).await.expect("drained before the deadline").unwrap().unwrap()
    }
}

/// One item, and no end.
fn endless<T: Send + 'static>(item: T) -> impl Stream<Item = T> + Send {
    stream::iter([item]).chain(stream::pending())
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(endless(Ok(Event::default().data("first"))))
}

#[test]
fn the_events_of_axum_end() {
    on_both(async || {
        let router = Router::new()
            .route("/by_handler", get(async || until_drain(events().await.into_response())))
            .merge(Router::new().route("/by_layer", get(events)).layer(MapResponseLayer::new(until_drain)));
        let server = Server::start(router).await;
        let (mut ends, mut senders) = (Vec::new(), Vec::new());
        for path in ["/by_handler", "/by_layer"] {
            let (mut one, mut two) = (h1(server.addr).await, h2(server.addr).await);
            for answer in [one.send_request(request(path)).await, two.send_request(request(path)).await] {
                let mut body = answer.unwrap().into_body();
                assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "data: first\n\n");
                ends.push(tokio::spawn(body.collect()));
            }
            senders.push((one, two));
        }
        let drained = server.drain().await;
        assert_eq!((drained.connections, drained.notified, drained.aborted), (4, 4, 0), "{drained:?}");
        for end in ends {
            assert_eq!(end.await.unwrap().expect("an end, and no reset").to_bytes(), "");
        }
    });
}

#[derive(Clone)]
struct Watch;

impl ServerStreamingService<u64> for Watch {
    type Response = u64;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<u64, Status>> + Send>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<u64>) -> Self::Future {
        ready(Ok(Response::new(Box::pin(endless(Ok(request.into_inner()))))))
    }
}

#[test]
fn the_streams_of_tonic_end_with_a_status() {
    on_both(async || {
        let service = tower::service_fn(async |request: Request<RequestBody>| {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<u64, u64>::default());
            Ok::<_, BoxError>(grpc.server_streaming(Watch, request).await)
        });
        let server = Server::start(service.map_response(until_drain)).await;
        let channel = Endpoint::from_shared(format!("http://{}", server.addr)).unwrap().connect().await.unwrap();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let (path, codec) = (PathAndQuery::from_static("/mill.Clock/Watch"), ProstCodec::<u64, u64>::default());
        let answer = grpc.server_streaming(tonic::Request::new(7), path, codec).await.unwrap();
        let mut messages = answer.into_inner();
        assert_eq!(messages.message().await.unwrap(), Some(7));
        let read = tokio::spawn(async move { messages.message().await });
        let drained = server.drain().await;
        assert_eq!((drained.connections, drained.notified, drained.aborted), (1, 1, 0), "{drained:?}");
        let status = read.await.unwrap().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "the server closes the connection"));
    });
}
