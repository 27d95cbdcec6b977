//! `server::serve` measured over sockets.

use super::*;

use std::fs;

use millstream::files::Files;
use millstream::metrics::{ResponseOutcome, Snapshot};
use millstream::server::RequestBody;

async fn start<S>(service: S) -> SocketAddr
where
    S: tower::Service<Request<RequestBody>, Response = Answer, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Measure::new().layer(service)).into_future());
    addr
}

async fn get(addr: SocketAddr, h2: bool, path: &str) -> Response<Incoming> {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let request = Request::get(format!("http://{addr}{path}"))
        .header("host", addr.to_string())
        .body(Empty::<Bytes>::new())
        .unwrap();
    if h2 {
        let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = shake.await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }
}

#[tokio::test]
async fn both_protocols_are_counted_apart() {
    let addr = start(tower::service_fn(async |_: Request<RequestBody>| {
        Ok(answer("both", frames([Ok(Bytes::from("hello ")), Ok(Bytes::from("world"))])))
    }))
    .await;
    let before = Snapshot::now();
    for (h2, version) in [(false, "1.1"), (true, "2")] {
        assert_eq!(get(addr, h2, "/").await.into_body().collect().await.unwrap().to_bytes(), "hello world");
        let all = once_of("both").await;
        let counted = all.iter().find(|responses| responses.version == version).expect("a response of this version");
        assert_eq!(
            (counted.outcome, counted.body_size.sum(), counted.frames.sum()),
            (ResponseOutcome::Complete, 11.0, 2.0)
        );
    }
    let lately = Snapshot::now().since(&before);
    assert!(lately.requests >= 2 && lately.frames >= 4 && lately.body_bytes >= 22, "{lately}");
    assert!(lately.reads >= 2, "{lately}");
}

#[tokio::test]
async fn a_client_that_leaves_is_no_error() {
    let addr = start(tower::service_fn(async |_: Request<RequestBody>| {
        let ticks = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok::<_, io::Error>(Frame::data(Bytes::from("tick"))), ()))
        });
        Ok(answer("leaves", StreamBody::new(ticks).boxed_unsync()))
    }))
    .await;
    let mut response = get(addr, false, "/").await;
    response.body_mut().frame().await.unwrap().unwrap();
    let now = Snapshot::now();
    assert!(now.active_requests >= 1 && now.open_connections >= 1, "{now}");
    drop(response);
    let all = once_of("leaves").await;
    assert_eq!((all[0].outcome, all[0].status), (ResponseOutcome::Aborted, Some(200)));
}

#[tokio::test]
async fn files_still_go_by_sendfile() {
    if testkit::lacks("sendfile") || testkit::lacks("mapping") {
        return;
    }
    const LEN: usize = 3 << 20;
    let directory = tempfile::tempdir().unwrap();
    let contents = testkit::noise(LEN);
    fs::write(directory.path().join("file"), &contents).unwrap();
    let files = Files::new(directory.path()).unwrap();
    let addr = start(tower::service_fn(move |request: Request<RequestBody>| {
        let found = files.get(request.method(), request.uri(), request.headers());
        async move {
            let mut found = found.await.map(boxed);
            found.extensions_mut().insert(Route::new("files"));
            Ok::<_, std::convert::Infallible>(found)
        }
    }))
    .await;
    let before = Snapshot::now();
    let got = get(addr, false, "/file").await.into_body().collect().await.unwrap().to_bytes();
    assert!(got == contents);
    let lately = Snapshot::now().since(&before);
    assert!(lately.bytes_by_sendfile >= LEN as u64, "{lately}");
    let all = once_of("files").await;
    assert_eq!((all[0].outcome, all[0].body_size.sum()), (ResponseOutcome::Complete, LEN as f64));
}
