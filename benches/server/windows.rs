//! Uploads over HTTP/2 with a long round trip: growing windows against fixed ones.
//!
//! A relay delays every byte by 25 ms each way, so a round trip is 50 ms. The server, the client and the relay share
//! this program. A fixed window of 64 KiB needs 64 round trips for 4 MiB, our default of 3 MiB two; a growing window
//! doubles, up to 16 MiB. *hyper* is its default, 1 MiB for each stream and for the connection. Then a second upload of
//! the same size is timed on the same connection, with grown windows. Nearly all of the time is waiting.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::net::TcpListener;
use millstream::server::{BodyError, Limits, RequestBody, serve};
use tokio::net::TcpStream;

use crate::common::contest::{By, Case, Goal, Measured};
use crate::common::options::options;
use crate::common::suite::Suite;
use crate::common::{noise, runtime};
use testkit::far::Far;

const DELAY: Duration = Duration::from_millis(25);
const FULL: usize = 16 << 20;
/// Bound for the time of the first upload, as a share of that with hyper's windows.
const SHARE: f64 = 0.7;

fn ways() -> [(&'static str, Limits); 5] {
    let fixed = Limits::default().streaming_requests(|_| true);
    let of = |stream, connection| fixed.clone().http2_stream_window(stream).http2_connection_window(connection);
    [
        ("millstream", fixed.clone()),
        ("growing", fixed.clone().http2_adaptive_window(true)),
        ("floor, fixed 16 MiB", of(FULL as u32, FULL as u32)),
        ("fixed 1 MiB, as hyper", of(1 << 20, 1 << 20)),
        ("fixed 64 KiB", of(64 << 10, 1 << 20)),
    ]
}

/// Reads the body piece by piece, like a proxy or a disk.
async fn length(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, BodyError> {
    let (mut body, mut len) = (request.into_body(), 0);
    while let Some(frame) = body.frame().await {
        len += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(Response::new(Full::from(len.to_string())))
}

async fn upload(client: &mut SendRequest<Full<Bytes>>, bytes: &Bytes) -> Duration {
    let start = Instant::now();
    let request = Request::post("http://mill/").body(Full::new(bytes.clone())).unwrap();
    let answer = client.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.to_bytes(), bytes.len().to_string());
    start.elapsed()
}

/// Returns the milliseconds of the first and the second upload on a connection, and the maximum number of bytes in
/// flight.
async fn measure(limits: Limits, bytes: &Bytes) -> [f64; 3] {
    let listener = TcpListener::builder().congestion("reno").bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, tower::service_fn(length)).limits(limits).into_future());
    let far = Far::start(addr, DELAY).await;
    let stream = TcpStream::connect(far.addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let first = upload(&mut client, bytes).await;
    let second = upload(&mut client, bytes).await;
    server.abort();
    [first.as_secs_f64() * 1000.0, second.as_secs_f64() * 1000.0, far.most() as f64]
}

pub(crate) fn run(suite: &mut Suite) {
    let len = options().pick(256 << 10, 2 << 20, 4 << 20);
    let title = format!("upload {} KiB, 50 ms there and back", len >> 10);
    if !suite.begins(&title) {
        return;
    }
    let bytes = Bytes::from(noise(len));
    let named = || ways().map(|(name, _)| Measured { name: name.to_owned(), ..Measured::default() });
    let [mut first, mut second] = [named(), named()];
    for _ in 0..options().pick(1, 1, 3) {
        for (way, (_, limits)) in ways().into_iter().enumerate() {
            // Each has its own runtime, so that no state carries over.
            let [one, two, most] = runtime().block_on(measure(limits, &bytes));
            first[way].wall.push(one);
            second[way].wall.push(two);
            first[way].note = format!("{:.0} KiB on the way", most / 1024.0);
        }
    }
    let goals = [Goal { against: "fixed 1 MiB, as hyper", by: By::Wall, most: SHARE }];
    suite.record(&Case { goals: &goals, ..Case::by_wall(&title, "wall ms", 1) }, first.into());
    let title = format!("{title}, again");
    suite.record(&Case::by_wall(&title, "wall ms", 1), second.into());
}
