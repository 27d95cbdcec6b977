//! Request ids and traces: which values are kept, over both protocols, under each server.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use millstream::server::Trusted;
use millstream_layers::{RequestId, StampLayer, TraceParent};
use tower::{Layer, service_fn};

use super::servers::{Client, FRIEND, STRANGER, field, start};
use testkit::http::on_both;

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn layer() -> StampLayer {
    let trusted: Trusted = FRIEND.to_string().parse().unwrap();
    StampLayer::new().trusted(trusted).environment("staging".parse().unwrap()).service_version("1.2.3".parse().unwrap())
}

/// Answers with a line for each header and each extension of the request.
async fn mirror<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut lines: Vec<_> =
        request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.extend(request.extensions().get::<RequestId>().map(|id| format!("id: {id}")));
    lines.extend(request.extensions().get::<TraceParent>().map(|parent| format!("parent: {parent}")));
    let mut response = Response::new(Full::new(lines.join("\n").into()));
    // The layer overwrites a header set by the service.
    response.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    response.headers_mut().insert("x-environment", "mine".parse().unwrap());
    Ok(response)
}

fn lines<'a>(answer: &'a Response<String>, name: &'a str) -> Vec<&'a str> {
    let lines = answer.body().lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value).collect()
}

fn is_ours(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Headers of a request; then, for a trusted peer, whether the id, the trace and the trace state are kept.
type Case<'a> = (&'a [(&'a str, &'a str)], bool, bool, bool);

async fn spoof(addr: SocketAddr) {
    let long = "x".repeat(65);
    let (fits, later) = ("x".repeat(64), GIVEN.replacen("00", "01", 1) + "-more");
    let state = [("traceparent", GIVEN), ("tracestate", "a=1,b=2")];
    let large = "a=".to_owned() + &"x".repeat(511);
    let table: &[Case<'_>] = &[
        (&[], false, false, false),
        (&[("x-request-id", "order-66_B")], true, false, false),
        (&[("x-request-id", &fits)], true, false, false),
        (&[("x-request-id", &long)], false, false, false),
        (&[("x-request-id", "a b")], false, false, false),
        (&[("x-request-id", "")], false, false, false),
        (&[("x-request-id", "a"), ("x-request-id", "b")], false, false, false),
        (&[("x-request-id", "a<script>")], false, false, false),
        (&[("traceparent", GIVEN)], false, true, false),
        (&[("traceparent", &later)], false, true, false),
        (&[("traceparent", &GIVEN[1..])], false, false, false),
        (&[("traceparent", &GIVEN.replace('4', "A"))], false, false, false),
        (&[("traceparent", GIVEN), ("traceparent", GIVEN)], false, false, false),
        (&state, false, true, true),
        (&[state[0], state[1], ("tracestate", "c=3")], false, true, true),
        (&[state[0], ("tracestate", &large)], false, true, false),
        (&[state[1]], false, false, false),
        (&[("traceparent", "00-0-0-0"), state[1]], false, false, false),
        (&[("x-request-id", "order-66"), state[0], state[1]], true, true, true),
    ];
    for source in [FRIEND, STRANGER] {
        for mut client in Client::both(source, addr).await {
            for (sent, keeps_id, keeps_trace, keeps_state) in table {
                let case = format!("{sent:?} from {source}");
                let trusted = source == FRIEND;
                let answer = client.ask(sent).await;
                let id = field(&answer, "x-request-id").unwrap();
                match *keeps_id && trusted {
                    true => assert_eq!(id, sent[0].1, "{case}"),
                    false => assert!(is_ours(id), "{case}: {id}"),
                }
                assert_eq!((lines(&answer, "x-request-id"), lines(&answer, "id")), (vec![id], vec![id]), "{case}");

                let [parent] = lines(&answer, "traceparent")[..] else { panic!("{case}: {answer:?}") };
                assert_eq!(lines(&answer, "parent"), [parent], "{case}");
                let read: TraceParent = parent.parse().unwrap();
                assert_eq!(parent.contains(TRACE), *keeps_trace && trusted, "{case}: {parent}");
                assert_eq!(read.sampled(), *keeps_trace && trusted, "{case}: {parent}");
                assert_ne!(read.parent_id(), 0x00f067aa0ba902b7, "{case}: the server makes its own parent id");
                let kept: Vec<_> = match *keeps_state && trusted {
                    true => sent.iter().filter(|(name, _)| *name == "tracestate").map(|(_, value)| *value).collect(),
                    false => Vec::new(),
                };
                assert_eq!(lines(&answer, "tracestate"), kept, "{case}");

                assert_eq!(field(&answer, "x-environment"), Some("staging"));
                assert_eq!(field(&answer, "x-service-version"), Some("1.2.3"));
                assert_eq!((field(&answer, "traceparent"), field(&answer, "tracestate")), (None, None));
            }
        }
    }
}

#[test]
fn only_trusted_peers_name_requests_and_traces() {
    on_both(|| async {
        let (addr, _) = start(layer().layer(service_fn(mirror))).await;
        spoof(addr).await;
    });
}

#[test]
fn only_trusted_peers_do_under_axum() {
    on_both(|| async {
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let app = axum::Router::new().fallback(async |request: axum::extract::Request| mirror(request).await.unwrap());
        let app = app.layer(layer());
        let app = app.into_make_service_with_connect_info::<millstream::server::Connection>();
        tokio::spawn(axum::serve(listener, app).into_future());
        spoof(addr).await;
    });
}

#[tokio::test]
async fn a_router_that_is_not_told_who_connects_trusts_nobody() {
    let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let trusted = "0.0.0.0/0".parse().unwrap();
    let app = axum::Router::new().fallback(async |request: axum::extract::Request| mirror(request).await.unwrap());
    tokio::spawn(axum::serve(listener, app.layer(StampLayer::new().trusted(trusted))).into_future());
    let answer = Client::one(FRIEND, addr).await.ask(&[("x-request-id", "mine"), ("traceparent", GIVEN)]).await;
    assert!(is_ours(field(&answer, "x-request-id").unwrap()));
    assert!(!lines(&answer, "traceparent")[0].contains(TRACE));
    assert_eq!(field(&answer, "x-environment"), Some("mine"), "the service sets this header");
}

/// The extensions by which each server passes the peer's address.
#[tokio::test]
async fn the_peer_is_known_from_extensions() {
    let ask = async |extend: &dyn Fn(&mut Request<()>)| {
        let mut request = Request::get("/").header("x-request-id", "kept").body(()).unwrap();
        extend(&mut request);
        let answer = tower::ServiceExt::oneshot(layer().layer(service_fn(mirror)), request).await.unwrap();
        field(&answer, "x-request-id") == Some("kept")
    };
    assert!(!ask(&|_| {}).await);
    for (source, expected) in [(FRIEND, true), (STRANGER, false)] {
        let peer = SocketAddr::from((source, 4711));
        assert_eq!(
            ask(&|request| {
                request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
            })
            .await,
            expected
        );
        {
            let info = tonic::transport::server::TcpConnectInfo { local_addr: Some(peer), remote_addr: Some(peer) };
            let insert = |request: &mut Request<()>| {
                request.extensions_mut().insert(info.clone());
            };
            assert_eq!(ask(&insert).await, expected);
        }
        let (stream, _theirs) = testkit::pair().await;
        let connection = millstream::server::Connection::new(peer.ip(), stream.handle());
        assert_eq!(ask(&|request| drop(request.extensions_mut().insert(connection.clone()))).await, expected);
    }
}

#[tokio::test]
async fn what_is_turned_off_is_left_alone() {
    let layer = StampLayer::new().trace(false).extensions(false);
    let (addr, _) = start(layer.layer(service_fn(mirror))).await;
    let answer = Client::one(STRANGER, addr).await.ask(&[("traceparent", "anything"), ("tracestate", "a=1")]).await;
    assert_eq!(lines(&answer, "traceparent"), ["anything"]);
    assert_eq!(lines(&answer, "tracestate"), ["a=1"]);
    assert_eq!((lines(&answer, "id").len(), lines(&answer, "parent").len()), (0, 0));
    assert_eq!(lines(&answer, "x-request-id"), [field(&answer, "x-request-id").unwrap()]);
    assert_eq!(field(&answer, "x-service-version"), None);
}

#[tokio::test]
async fn traces_that_begin_here_are_sampled_as_asked() {
    for (percent, expected) in [(0.0, false), (100.0, true)] {
        let layer = StampLayer::new().sampled(percent);
        let (addr, _) = start(layer.layer(service_fn(mirror))).await;
        let mut client = Client::two(STRANGER, addr).await;
        for _ in 0..20 {
            let parent: TraceParent = lines(&client.ask(&[]).await, "parent")[0].parse().unwrap();
            assert_eq!((parent.sampled(), parent.random()), (expected, true));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_spans_are_unique_across_streams() {
    let (addr, _) = start(layer().layer(service_fn(mirror))).await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = Client::two(STRANGER, addr).await;
                let mut seen = Vec::new();
                for _ in 0..250 {
                    let answer = client.ask(&[]).await;
                    let parent: TraceParent = lines(&answer, "parent")[0].parse().unwrap();
                    seen.extend([
                        field(&answer, "x-request-id").unwrap().to_owned(),
                        format!("{:x}", parent.trace_id()),
                        format!("{:x}", parent.parent_id()),
                    ]);
                }
                seen
            })
        })
        .collect();
    let mut seen = HashSet::new();
    for task in tasks {
        seen.extend(task.await.unwrap());
    }
    assert_eq!(seen.len(), 3000);
}
