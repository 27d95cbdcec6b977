//! Requests whose end is ambiguous (request smuggling): refused, or read as hyper reads them, and nothing behind them is
//! answered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use testkit::http::{Raw, boxed, on_both, without_dates};
use testkit::serving::serve;

/// The request that an attacker hides behind or in another request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: mill\r\n\r\n";

/// The fields of a `POST` that no recipient may accept.
const REFUSED: &[&str] = &[
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length: 5\r\nContent-Length: 0\r\n",
    "Content-Length: 5, 6\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: -5\r\n",
    "Content-Length: 0x5\r\n",
    "Content-Length: 5 5\r\n",
    "Content-Length:\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: identity\r\n",
    "Transfer-Encoding: \"chunked\"\r\n",
    "Transfer-Encoding: \x0bchunked\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Content-Length : 5\r\n",
    "Content-Length\t: 5\r\n",
    "Transfer-Encoding:\r\n chunked\r\n",
    "Content-Length: 5\r\n\t6\r\n",
    "X: a\r\n Content-Length: 5\r\n",
    " X: a\r\n",
    "X: a\rContent-Length: 5\r\n",
    "X: a\r\rContent-Length: 5\r\n",
    "Content-Length: 5\r\r\n",
    "\rContent-Length: 5\r\n",
    "X: a\0\r\n",
    "X\r\n",
    ": 5\r\n",
];

/// Chunked bodies that no recipient may accept.
const BROKEN: &[&str] = &[
    "5\nhello\n0\n\n",
    "5\nhello\r\n0\r\n\r\n",
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5 5\r\nhello\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "5\r\nhelloX\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "\r\n5\r\nhello\r\n0\r\n\r\n",
];

/// A server, and the paths of the requests that reached its service.
struct Served {
    addr: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// Serves responses of unknown length that pend at first, which are those that the server takes over.
    async fn start(takeover: bool, reads_body: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let paths = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&paths);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            seen.lock().unwrap().push(request.uri().path().to_owned());
            async move {
                let is_broken = reads_body && request.into_body().collect().await.is_err();
                let frames = stream::once(async {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"answer")))
                });
                let answer = Response::builder().status(if is_broken { 422 } else { 200 });
                Ok::<_, Infallible>(answer.body(boxed(StreamBody::new(frames))).unwrap())
            }
        });
        // A client that has ended its side is waited for, however slow the machine is.
        let limits = Limits::default().half_close(Duration::MAX);
        tokio::spawn(serve(listener, service).takeover(takeover).limits(limits).into_future());
        Self { addr, paths }
    }

    /// Sends `bytes`, ends the client's side, and returns all that the server sends, and the paths that were called.
    async fn answer(&self, bytes: &str) -> (String, Vec<String>) {
        let mut client = Raw::connect(self.addr).await;
        client.send(bytes).await;
        // The server may have closed the connection.
        let _ = client.io.shutdown().await;
        let got = timeout(testkit::HANGS, client.drain()).await.expect("an end");
        let paths = std::mem::take(&mut *self.paths.lock().unwrap());
        (String::from_utf8(without_dates(got)).unwrap(), paths)
    }
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect()
}

/// Sends `bytes` to servers that take responses over or not, whose services read bodies or not. Returns the paths
/// called and the statuses, which are the same for all.
async fn same(bytes: &str, reads: &[bool]) -> (Vec<String>, Vec<String>) {
    let mut all = Vec::new();
    for &reads_body in reads {
        let mut both = Vec::new();
        for takeover in [false, true] {
            both.push(Served::start(takeover, reads_body).await.answer(bytes).await);
        }
        assert_eq!(both[0], both[1], "left: by hyper alone; {bytes:?}");
        let (got, paths) = both.swap_remove(1);
        all.push((paths, statuses(&got).into_iter().map(str::to_owned).collect::<Vec<_>>()));
    }
    assert!(all.iter().all(|other| *other == all[0]), "{bytes:?}: {all:?}");
    all.swap_remove(0)
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: mill\r\n{fields}\r\n{body}{SMUGGLED}")
}

const BOTH: &[bool] = &[true, false];

#[test]
fn heads_that_are_ambiguous_are_refused_and_nothing_behind_them_is_answered() {
    on_both(|| async {
        let old = format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}");
        let line = format!("GET /\rx HTTP/1.1\r\nHost: mill\r\n\r\n{SMUGGLED}");
        let bodies = ["hello", "0\r\n\r\n", ""];
        let posts = REFUSED.iter().flat_map(|fields| bodies.map(|body| post(fields, body)));
        let servers = [Served::start(false, true).await, Served::start(true, true).await];
        for bytes in posts.chain([old, line]) {
            for server in &servers {
                let (got, paths) = server.answer(&bytes).await;
                assert_eq!((statuses(&got), paths.len()), (vec!["400"], 0), "{bytes:?}");
                assert!(got.contains("connection: close\r\n") && got.ends_with("\r\n\r\n"), "{bytes:?}: {got}");
            }
        }
    });
}

#[test]
fn chunks_that_are_ambiguous_end_the_connection() {
    on_both(|| async {
        for body in BROKEN {
            let bytes = post("Transfer-Encoding: chunked\r\n", body);
            for reads_body in [true, false] {
                let status = if reads_body { "422" } else { "200" };
                assert_eq!(same(&bytes, &[reads_body]).await, (vec!["/".into()], vec![status.into()]), "{bytes:?}");
            }
        }
    });
}

#[test]
fn a_body_is_never_a_request() {
    on_both(|| async {
        let one = (vec!["/".to_owned()], vec!["200".to_owned()]);
        // `Transfer-Encoding` prevails, and the connection ends (RFC 9112 section 6.1).
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: gzip, chunked\r\nContent-Length: 5\r\n",
            "content-length: 43\r\ntransfer-encoding: Chunked\r\n",
        ] {
            assert_eq!(same(&post(fields, "0\r\n\r\n"), BOTH).await, one, "{fields:?}");
        }
        // A line ends with LF too (section 2.2), so the length is that of what follows.
        let len = SMUGGLED.len();
        for fields in [
            format!("X: a\nContent-Length: {len}\r\n"),
            format!("X: a\r\nContent-Length: {len}\n"),
            format!("Content-Length: {len}\r\nContent-Length: {len}\r\n"),
        ] {
            assert_eq!(same(&post(&format!("{fields}Connection: close\r\n"), ""), BOTH).await, one, "{fields:?}");
        }
        // The hidden request is found if it is one.
        let two = (vec!["/".into(), "/smuggled".into()], vec!["200".into(), "200".into()]);
        assert_eq!(same(&post("Content-Length: 5\r\n", "hello"), BOTH).await, two);
        assert_eq!(same(&post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), BOTH).await, two);
    });
}
