//! Uploads by HTTP/2 from far away: windows that grow against fixed ones.
//!
//! A relay holds every byte for 25 ms each way, so that a round trip is 50 ms; the servers, the clients and the relay
//! share this program. A window fills when as many bytes as the largest that there is, 16 MiB, have come: until then a
//! fixed window of 64 KiB takes 256 round trips. *hyper* is its own default, 1 MiB for each stream and for all of them.
//! Then as much again is timed on the same connection, with windows that have grown.
//!
//! **Look at** wall time, which is nearly all waiting here, and at the most bytes that were on their way at a time.
//! There is no criterion: one upload is timed, three times by turns, and the medians are shown.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::net::TcpListener;
use millstream::server::{BodyError, Limits, RequestBody, serve};
use tokio::net::TcpStream;

#[path = "common/mod.rs"]
mod common;
#[allow(unreachable_pub, reason = "tests have it too")]
#[path = "../tests/support/far.rs"]
mod far;

use common::{bar, is_test, runtime};
use far::Far;

/// One way.
const DELAY: Duration = Duration::from_millis(25);
/// The largest window there is.
const FULL: usize = 16 << 20;
/// Most that is left of the time until a window is full.
const CONVERGENCE: f64 = 0.15;

/// The contenders: the first is timed against the last.
fn ways() -> [(&'static str, Limits); 4] {
    let fixed = Limits::default().streaming(|_| true);
    let of = |stream, connection| fixed.clone().stream_window(stream).connection_window(connection);
    [
        ("adaptive", fixed.clone().adaptive_window(true)),
        ("fixed, 16 MiB from the start", of(FULL as u32, FULL as u32)),
        ("fixed, 1 MiB, as hyper", of(1 << 20, 1 << 20)),
        ("fixed, 64 KiB of 1 MiB, the default", fixed.clone()),
    ]
}

/// Reads the body piece by piece, as a proxy or a disk would.
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

/// Milliseconds for the first and for the second upload on a connection, and most bytes on their way.
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

fn main() {
    let (len, rounds) = if is_test() { (256 << 10, 1) } else { (FULL, 3) };
    let bytes = Bytes::from(common::noise(len));
    let mut measured = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for ((_, limits), measured) in ways().into_iter().zip(&mut measured) {
            // A runtime each, so that what one leaves behind is not another's.
            measured.push(runtime().block_on(measure(limits, &bytes)));
        }
    }
    let medians = measured.map(|rounds| {
        [0, 1, 2].map(|figure| {
            let mut figures: Vec<f64> = rounds.iter().map(|figures| figures[figure]).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        })
    });
    let title = format!("uploads of {} KiB, 50 ms there and back", len >> 10);
    let mut text = format!("\n{title:<44} {:>10} {:>12} {:>14}\n", "ms, first", "ms, second", "KiB on the way");
    for ((name, _), [first, second, most]) in ways().iter().zip(&medians) {
        writeln!(text, "  {name:<42} {first:>10.0} {second:>12.0} {:>14.0}", most / 1024.0).unwrap();
    }
    let [adaptive, .., fixed] = medians;
    text += &bar("time until a window is full, of the fixed default's", adaptive[0] / fixed[0], CONVERGENCE);
    println!("{text}");
}
