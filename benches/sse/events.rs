//! Independent event streams with bodies of their own, each event of 108 bytes: 1000 streams with 100 events a second,
//! and 64 and 1000 streams with one each 20 ms, the pace of a model.
//!
//! | row | |
//! |---|---|
//! | millstream | [`server::serve`](millstream::server::serve()) |
//! | hyper, tokio's stream | hyper-util's server on tokio's listener |
//! | floor | a bare loop of `send` on blocking sockets, nothing else |

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{self, Context, Poll};

use bytes::Bytes;
use hyper::Response;
use hyper::body::{Body, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tower::Service;

use super::readers::{Pace, counted, floor, measure};
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
        task::ready!(self.0.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&EVENT)))))
    }
}

fn service<R>(
    pace: Pace,
) -> impl Service<R, Response = Response<Events>, Error = Infallible, Future: Send> + Clone + Send {
    tower::service_fn(move |_| {
        let mut ticks = interval(pace.period());
        // A slow reader gets the next event, not a burst of old ones.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ready(Ok(Response::new(Events(ticks))))
    })
}

async fn stock(listener: TcpListener, pace: Pace) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    loop {
        let (stream, _) = listener.accept().await?;
        let builder = builder.clone();
        tokio::spawn(async move {
            // The client disconnects in the middle of the stream.
            let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service(pace))).await;
        });
    }
}

async fn ours(listener: TcpListener, pace: Pace) -> io::Result<()> {
    millstream::server::serve(millstream::net::TcpListener::from_std(listener)?, service(pace)).await
}

pub(crate) fn run(suite: &mut Suite) {
    for (pace, most) in [(Pace::new(1000, 100), 0.90), (Pace::new(64, 50), 0.85), (Pace::new(1000, 50), 0.85)] {
        let title = format!("events, {} streams x {} Hz", pace.streams(), pace.hz);
        let goal = |against, most| Goal { against, by: By::Cpu, most };
        let goals = [goal("hyper, tokio's stream", most), goal("floor, bare sends", 1.12)];
        let case = Case { operations: Some(pace.events()), goals: &goals, ..Case::new(&title, "CPU us/event", 1) };
        let server = move |events| measure(Server::start(move |l| ours(l, pace)).addr, pace, &EVENT, events);
        let rival = move |events| measure(Server::start(move |l| stock(l, pace)).addr, pace, &EVENT, events).0;
        suite.run(&case, || {
            vec![
                counted("millstream", server),
                Contender::new("hyper, tokio's stream", rival),
                Contender::new("floor, bare sends", move |events| floor(pace, &EVENT, events)),
            ]
        });
    }
}
