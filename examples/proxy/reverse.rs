//! HTTP proxy in front of one server: requests arrive through `server::serve` and leave through hyper-util's client
//! over `net::Connector`.
//!
//! Bodies stream both ways, frame by frame, with backpressure. An upstream that fails before its response head causes a
//! 502 or a 504. One that fails in the body fails the response body: the client's connection is closed before the
//! length is reached (HTTP/1), or its stream is reset (HTTP/2). If a client disconnects, the body is dropped, and with
//! it the upstream's connection (HTTP/1) or stream (HTTP/2).

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::{Authority, Scheme, Uri};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use millstream::copy::copy_bidirectional;
use millstream::server::{Connection, RequestBody};
use tower::Service;

use super::fields;
use super::watched::Watched;
use crate::report::report;

/// Response of the upstream, or a text of the proxy.
pub(crate) type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Time that an idle connection to the upstream is kept.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of a response that are read ahead of the client, per request.
const AHEAD: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Plan {
    /// Authority of the upstream, used in URIs.
    pub(crate) to: Authority,
    /// Whether the upstream speaks HTTP/2.
    pub(crate) h2: bool,
    /// Fields set in each response; they replace the upstream's fields of the same name.
    pub(crate) stamps: HeaderMap,
    /// Timeout for the response head, counted once the request makes no more progress.
    pub(crate) timeout: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Reverse<C> {
    client: Client<C, Watched>,
    plan: Arc<Plan>,
}

impl<C: Connect + Clone + Send + Sync + 'static> Reverse<C> {
    pub(crate) fn new(connector: C, plan: Plan) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http2_only(plan.h2)
            .http1_max_buf_size(AHEAD)
            .http2_initial_stream_window_size(AHEAD as u32)
            .build(connector);
        Self { client, plan: Arc::new(plan) }
    }

    async fn answer(self, mut request: Request<RequestBody>) -> Answer {
        let Plan { to, h2, stamps, timeout } = &*self.plan;
        let version = request.version();
        let path = match request.uri().path_and_query() {
            Some(path) if *request.method() != Method::CONNECT => path.clone(),
            _ => return refuse(StatusCode::NOT_IMPLEMENTED, "this proxy forwards requests with a path only"),
        };
        let protocol = fields::upgrade(request.headers()).filter(|_| !h2 && version == Version::HTTP_11);
        let client_side = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let peer = request.extensions().get().and_then(Connection::peer);
        fields::forward(&mut request, peer, *h2);
        if let Some(protocol) = protocol {
            fields::set_upgrade(request.headers_mut(), protocol);
        }
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(to.clone()).path_and_query(path);
        *request.uri_mut() = uri.build().expect("parts of valid URIs");
        *request.version_mut() = Version::HTTP_11;

        let (parts, body) = request.into_parts();
        let (body, frames) = Watched::new(body);
        let mut waiting = pin!(self.client.request(Request::from_parts(parts, body)));
        let mut seen = 0;
        let answered = loop {
            match tokio::time::timeout(*timeout, waiting.as_mut()).await {
                Ok(answered) => break answered,
                Err(_) => match frames.load(Ordering::Relaxed) {
                    now if now != seen => seen = now,
                    _ => {
                        return refuse(
                            StatusCode::GATEWAY_TIMEOUT,
                            "the server behind this proxy did not answer in time",
                        );
                    }
                },
            }
        };
        let mut response = match answered {
            Ok(response) => response,
            Err(e) => {
                eprintln!("{}", report(&e));
                return refuse(
                    StatusCode::BAD_GATEWAY,
                    match e.is_connect() {
                        true => "the server behind this proxy cannot be reached",
                        false => "the server behind this proxy closed the connection without an answer",
                    },
                );
            }
        };
        let switched =
            fields::upgrade(response.headers()).filter(|_| response.status() == StatusCode::SWITCHING_PROTOCOLS);
        let upstream_side = switched.is_some().then(|| hyper::upgrade::on(&mut response));
        let came_by = response.version();
        fields::remove_hop_by_hop(response.headers_mut());
        fields::add_via(response.headers_mut(), came_by);
        for name in stamps.keys() {
            response.headers_mut().remove(name);
        }
        response.headers_mut().extend(stamps.clone());
        match (client_side, upstream_side, switched) {
            (Some(client), Some(upstream), Some(protocol)) => {
                fields::set_upgrade(response.headers_mut(), protocol);
                tokio::spawn(tunnel(client, upstream));
            }
            _ if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return refuse(
                    StatusCode::BAD_GATEWAY,
                    "the server behind this proxy changed the protocol without a request",
                );
            }
            _ => {}
        }
        // The version is that of the client's connection.
        *response.version_mut() = version;
        response.map(Either::Left)
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<RequestBody>> for Reverse<C> {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let this = self.clone();
        Box::pin(async { Ok(this.answer(request).await) })
    }
}

async fn tunnel(client: OnUpgrade, upstream: OnUpgrade) {
    match tokio::try_join!(client, upstream) {
        Ok((client, upstream)) => {
            let ended = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await;
            if let Err(e) = ended {
                eprintln!("{}", report(&e));
            }
        }
        Err(e) => eprintln!("{}", report(&e)),
    }
}

/// Returns an error response of the proxy. Details are logged only: clients must not see addresses.
fn refuse(status: StatusCode, text: &'static str) -> Answer {
    let mut response = Response::new(Either::Right(Full::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields::add_via(response.headers_mut(), Version::HTTP_11);
    response
}
