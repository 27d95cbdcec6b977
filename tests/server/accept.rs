//! A process without free descriptors: the listener survives and serves as soon as one is free. The limit is per
//! process, so the test runs in its own.

use std::fs::File;
use std::future::ready;
use std::time::{Duration, Instant};

use hyper::Response;
use millstream::metrics::Snapshot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpSocket;

use testkit::alone;
use testkit::http::{Raw, boxed, on_both, start};

#[test]
fn a_listener_out_of_descriptors_serves_after_one_close() {
    // The descriptors of a closed connection become free one after the other.
    if testkit::portable("each socket takes two descriptors") {
        return;
    }
    if alone::ran_in_child() {
        return;
    }
    on_both(starve);
}

fn hello() -> Response<testkit::http::AnyBody> {
    Response::new(boxed(http_body_util::Full::new("hello".into())))
}

async fn starve() {
    let addr = start(|_| ready(hello())).await;
    let mut old = Raw::connect(addr).await;
    assert_eq!(old.get("/").await.1, b"hello");
    let sockets: Vec<_> = (0..5).map(|_| TcpSocket::new_v4().unwrap()).collect();

    let unlimited = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..unlimited }).unwrap();
    let mut fill = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        fill.push(file);
    }
    let before = Snapshot::now();
    let mut clients = Vec::new();
    for socket in sockets {
        // The kernel completes the connection; the request waits in the socket.
        let mut client = Raw::over(socket.connect(addr).await.unwrap());
        client.ask("/").await;
        clients.push(client);
    }
    while Snapshot::now().since(&before).accept_pauses < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(Snapshot::now().since(&before).accepted, 0, "nothing is accepted without a descriptor");
    assert_eq!(old.get("/").await.1, b"hello", "open connections are served");

    // One free descriptor suffices: each served client frees one for the next.
    drop(fill.pop());
    for mut client in clients {
        let since = Instant::now();
        let head = client.head().await;
        assert_eq!(client.body(head.content_length()).await.unwrap(), b"hello");
        println!("served after {:?}", since.elapsed());
    }
    drop(fill);
    setrlimit(Resource::Nofile, unlimited).unwrap();
    assert_eq!(Raw::connect(addr).await.get("/").await.1, b"hello");
}
