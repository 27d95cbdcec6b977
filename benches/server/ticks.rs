//! A service for tonic: streams of messages at a steady rate or without a limit.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tonic::body::Body;
use tonic::client;
use tonic::server::{self, NamedService, ServerStreamingService};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

const WATCH: &str = "/millstream.bench.Ticks/Watch";

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct WatchRequest {
    #[prost(uint32, tag = "1")]
    pub(crate) hz: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) payload: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Tick {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(fixed64, tag = "2")]
    pub(crate) due_at: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) payload: Bytes,
}

/// Returns the nanoseconds since 1970-01-01.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticks;

impl NamedService for Ticks {
    const NAME: &'static str = "millstream.bench.Ticks";
}

impl Service<http::Request<Body>> for Ticks {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != WATCH {
            let unknown = Status::unimplemented(format!("no method {}", request.uri().path()));
            return Box::pin(ready(Ok(unknown.into_http())));
        }
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::<Tick, WatchRequest>::default());
            Ok(grpc.server_streaming(Watch, request).await)
        })
    }
}

struct Watch;

impl ServerStreamingService<WatchRequest> for Watch {
    type Response = Tick;
    type ResponseStream = Ticking;
    type Future = Ready<Result<Response<Ticking>, Status>>;

    fn call(&mut self, request: Request<WatchRequest>) -> Self::Future {
        ready(Ok(Response::new(Ticking::new(&request.into_inner()))))
    }
}

/// A response stream: ticks at a steady rate. All streams of a process tick at the same moments.
pub(crate) struct Ticking {
    /// `None`: as fast as the client reads.
    ticks: Option<Interval>,
    payload: Bytes,
    next: u64,
}

impl Ticking {
    fn new(asked: &WatchRequest) -> Self {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let ticks = (asked.hz > 0).then(|| {
            let period = Duration::from_secs(1) / asked.hz;
            let first = *FIRST.get_or_init(Instant::now);
            let gone = first.elapsed().as_nanos().div_ceil(period.as_nanos());
            let mut ticks = interval_at(first + period * u32::try_from(gone).unwrap_or(u32::MAX), period);
            // A slow reader gets the next tick, not a burst of old ones.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks
        });
        Self { ticks, payload: Bytes::from(vec![b'x'; asked.payload as usize]), next: 0 }
    }
}

impl Stream for Ticking {
    type Item = Result<Tick, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let late = match &mut self.ticks {
            Some(ticks) => ready!(ticks.poll_tick(cx)).elapsed().as_nanos() as u64,
            None => 0,
        };
        let number = self.next;
        self.next += 1;
        Poll::Ready(Some(Ok(Tick { number, due_at: now().saturating_sub(late), payload: self.payload.clone() })))
    }
}

pub(crate) async fn watch(channel: Channel, asked: WatchRequest) -> Result<Streaming<Tick>, Status> {
    let mut grpc = client::Grpc::new(channel);
    grpc.ready().await.map_err(|e| Status::new(Code::Unavailable, e.to_string()))?;
    let codec = ProstCodec::<WatchRequest, Tick>::default();
    let answer = grpc.server_streaming(Request::new(asked), PathAndQuery::from_static(WATCH), codec).await?;
    Ok(answer.into_inner())
}
