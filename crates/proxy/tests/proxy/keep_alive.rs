//! Comments in the event streams of upstreams, and nothing in other responses.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use tokio::sync::mpsc;

use super::*;
use testkit::cutter::cutter;

const COMMENT: &str = ":\n";
/// Silence after which the relay ends a connection.
const CUT: Duration = Duration::from_millis(500);
/// Versions of the client and of the upstream: HTTP/2 where set.
const WAYS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

async fn ask(addr: SocketAddr, by_h2: bool, path: &str) -> Response<hyper::body::Incoming> {
    match by_h2 {
        false => h1(addr).await.send_request(request(path)).await.unwrap(),
        true => h2(addr).await.send_request(request(&format!("http://mill{path}"))).await.unwrap(),
    }
}

/// Returns the data of the next frames, of `len` bytes in all.
async fn read(body: &mut hyper::body::Incoming, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < len {
        let frame = timeout(HANGS, body.frame()).await.expect("it comes").unwrap().unwrap();
        got.extend(frame.into_data().unwrap());
    }
    got
}

#[test]
fn a_silent_upstream_has_comments_between_its_events() {
    on_both(async || {
        for (by_h2, upstream_h2) in WAYS {
            let (source, events) = mpsc::channel::<&'static str>(8);
            let events = Arc::new(std::sync::Mutex::new(Some(events)));
            let upstream = start(move |_| {
                let mut events = events.lock().unwrap().take().unwrap();
                let frames = stream::poll_fn(move |cx| events.poll_recv(cx));
                let body = StreamBody::new(frames.map(|data| Ok::<_, io::Error>(Frame::data(Bytes::from(data)))));
                let response = Response::builder().header(CONTENT_TYPE, "text/event-stream");
                std::future::ready(response.body(boxed(body)).unwrap())
            })
            .await;
            let addr = proxy(plan(upstream, upstream_h2).keep_alive(Duration::from_millis(20))).await;
            let mut body = ask(addr, by_h2, "/").await.into_body();
            assert_eq!(read(&mut body, 2 * COMMENT.len()).await, [COMMENT; 2].concat().as_bytes());
            source.try_send("data: a\n\n").unwrap();
            // Comments may precede the event.
            let mut got = String::new();
            while !got.ends_with(&format!("data: a\n\n{COMMENT}")) {
                got += std::str::from_utf8(&read(&mut body, 1).await).unwrap();
            }
            assert_eq!(got.replace(COMMENT, ""), "data: a\n\n");
            source.try_send("data: b").unwrap();
            let mut got = String::new();
            while !got.ends_with("data: b") {
                got += std::str::from_utf8(&read(&mut body, 1).await).unwrap();
            }
            assert_eq!(got.replace(COMMENT, ""), "data: b");
            let cut = timeout(Duration::from_millis(200), body.frame()).await;
            assert!(cut.is_err(), "an incomplete event is left alone: {cut:?}");
            source.try_send("\n\n").unwrap();
            assert_eq!(read(&mut body, 2 + COMMENT.len()).await, format!("\n\n{COMMENT}").as_bytes());
            drop(source);
            let rest = body.collect().await.unwrap().to_bytes();
            assert_eq!(std::str::from_utf8(&rest).unwrap().replace(COMMENT, ""), "");
        }
    });
}

#[test]
fn other_responses_have_none() {
    on_both(async || {
        for (by_h2, upstream_h2) in WAYS {
            let upstream = start(|request| {
                let events = || Response::builder().header(CONTENT_TYPE, "text/event-stream");
                let later = |data: &'static str| {
                    let frame = async move {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        Some(Ok::<_, io::Error>(Frame::data(Bytes::from(data)))).filter(|_| !data.is_empty())
                    };
                    boxed(StreamBody::new(Box::pin(stream::once(frame).filter_map(std::future::ready))))
                };
                std::future::ready(match request.uri().path() {
                    "/length" => events().header(CONTENT_LENGTH, 9).body(later("data: a\n\n")).unwrap(),
                    "/gzip" => events().header("content-encoding", "gzip").body(later("zip")).unwrap(),
                    // Over HTTP/2 the end comes after the head.
                    "/head" => events().body(later("")).unwrap(),
                    _ => Response::new(later("text")),
                })
            })
            .await;
            let addr = proxy(plan(upstream, upstream_h2).keep_alive(Duration::from_millis(10))).await;
            for (path, expected) in [("/length", "data: a\n\n"), ("/gzip", "zip"), ("/", "text")] {
                assert_eq!(whole(ask(addr, by_h2, path).await).await.unwrap(), expected, "{path}");
            }
            let head = Request::head("http://mill/head").body(http_body_util::Empty::<Bytes>::new()).unwrap();
            let answer = h2(addr).await.send_request(head).await.unwrap();
            assert_eq!(whole(answer).await.unwrap(), "");
        }
    });
}

#[test]
fn a_relay_that_ends_silent_connections_ends_no_stream() {
    on_both(async || {
        let upstream = start(|request| {
            let is_silent = request.uri().path() == "/silent";
            let events = stream::unfold(0, move |n| async move {
                if n > 0 && is_silent {
                    std::future::pending::<()>().await;
                }
                if n > 0 {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                (n < 3).then_some((Ok::<_, io::Error>(Frame::data(Bytes::from(format!("data: {n}\n\n")))), n + 1))
            });
            let response = Response::builder().header(CONTENT_TYPE, "text/event-stream");
            std::future::ready(response.body(boxed(StreamBody::new(Box::pin(events)))).unwrap())
        })
        .await;
        let (kept, kept_cuts) =
            cutter(proxy(plan(upstream, false).keep_alive(Duration::from_millis(200))).await, CUT).await;
        let (plain, plain_cuts) = cutter(proxy(plan(upstream, false)).await, CUT).await;
        let read = async |addr, by_h2, path| whole(ask(addr, by_h2, path).await).await;
        let (one, two, cut) =
            tokio::join!(read(kept, false, "/"), read(kept, true, "/"), read(plain, false, "/silent"));
        for got in [one, two] {
            let got = String::from_utf8(got.unwrap().to_vec()).unwrap();
            assert_eq!(got.replace(COMMENT, ""), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
        }
        assert!(cut.is_err());
        assert_eq!((kept_cuts.load(Ordering::SeqCst), plain_cuts.load(Ordering::SeqCst)), (0, 1));
    });
}
