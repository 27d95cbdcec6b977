//! Many independent event streams: an event of 108 bytes on each of 1000 streams, 100 times a second.
//!
//! | row | |
//! |---|---|
//! | millstream | [`server::serve`](millstream::server::serve()) |
//! | hyper, tokio's stream | hyper-util's server on tokio's listener |
//! | floor | a bare loop of `send` on blocking sockets, nothing else |

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::readers::{EVENTS, HZ, counted, floor, measure, streams};
use crate::common::contest::{By, Case, Contender, Goal};
use crate::common::server::Server;
use crate::common::suite::Suite;

/// One event: 100 bytes of payload and 8 bytes of framing.
static EVENT: [u8; 108] = {
    let mut event = [b'x'; 108];
    event.split_at_mut(6).0.copy_from_slice(b"data: ");
    event.split_at_mut(106).1.copy_from_slice(b"\n\n");
    event
};

/// Events at a steady rate until the client disconnects.
struct Events(Interval);

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.0.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&EVENT)))))
    }
}

async fn answer<B>(_: Request<B>) -> Result<Response<Events>, Infallible> {
    let mut ticks = interval(Duration::from_secs(1) / HZ);
    // A slow reader gets the next event, not a burst of old ones.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Ok(Response::new(Events(ticks)))
}

async fn stock(listener: TcpListener) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    loop {
        let (stream, _) = listener.accept().await?;
        let builder = builder.clone();
        tokio::spawn(async move {
            let service = TowerToHyperService::new(tower::service_fn(answer));
            // The client disconnects in the middle of the stream.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn ours(listener: TcpListener) -> io::Result<()> {
    let listener = millstream::net::TcpListener::from_std(listener)?;
    millstream::server::serve(listener, tower::service_fn(answer)).await
}

pub(crate) fn run(suite: &mut Suite) {
    let title = format!("events, {} streams x {HZ} Hz", streams());
    let goal = |against, most| Goal { against, by: By::Cpu, most };
    let goals = [goal("hyper, tokio's stream", 0.88), goal("floor, bare sends", 1.12)];
    let case = Case { operations: Some(EVENTS), goals: &goals, ..Case::new(&title, "CPU us/event", 1) };
    suite.run(&case, || {
        vec![
            counted("millstream", |events| measure(Server::start(ours).addr, &EVENT, events)),
            Contender::new("hyper, tokio's stream", |events| measure(Server::start(stock).addr, &EVENT, events).0),
            Contender::new("floor, bare sends", |events| floor(&EVENT, events)),
        ]
    });
}
