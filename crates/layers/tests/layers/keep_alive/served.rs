//! `KeepAliveLayer` behind a server: through a relay that ends silent connections, and for clients that leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use http::header::{ACCEPT, CONTENT_TYPE};
use millstream_layers::KeepAliveLayer;
use tokio::sync::watch;
use tokio::time::sleep;

use super::*;
use testkit::cutter::cutter;
use testkit::http::{h1, h2, on_both, request, whole};

/// Longer than the relay accepts.
const SILENCE: Duration = Duration::from_secs(3);
const PERIOD: Duration = Duration::from_millis(200);
/// Silence after which the relay ends a connection.
const CUT: Duration = Duration::from_millis(500);

/// The end of all silences.
type Speaks = watch::Receiver<bool>;

/// Is silent until it may speak, and then still longer than the relay accepts.
async fn silence(mut speaks: Speaks) {
    speaks.wait_for(|&speaks| speaks).await.unwrap();
    sleep(SILENCE).await;
}

/// An event before and after a silence. An event is cut in two.
fn thinks(speaks: Speaks) -> Response<axum::body::Body> {
    let frames = stream::unfold(0, move |n| {
        let speaks = speaks.clone();
        async move {
            let data = match n {
                0 => "data: 0\n\ndata: ",
                1 => "1\n\n",
                2 => {
                    silence(speaks).await;
                    "data: 2\n\n"
                }
                _ => return None,
            };
            Some((Ok::<_, Infallible>(Bytes::from(data)), n + 1))
        }
    });
    Response::builder().header(CONTENT_TYPE, "text/event-stream").body(axum::body::Body::from_stream(frames)).unwrap()
}

async fn starts_late(speaks: Speaks) -> Response<axum::body::Body> {
    silence(speaks.clone()).await;
    thinks(speaks)
}

fn app(speaks: &Speaks) -> Router {
    let (now, late) = (speaks.clone(), speaks.clone());
    Router::new().route("/thinks", get(async || thinks(now))).route("/late", get(async || starts_late(late).await))
}

async fn start(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(millstream::server::serve(listener, app).into_future());
    addr
}

fn asks(path: &str) -> Request<Empty<Bytes>> {
    let mut request = request(path);
    request.headers_mut().insert(ACCEPT, "text/event-stream".parse().unwrap());
    request
}

/// Sends a request over a connection of its own. Returns the whole body.
async fn read(addr: SocketAddr, by_h2: bool, path: &str) -> Result<Bytes, hyper::Error> {
    match by_h2 {
        false => whole(h1(addr).await.send_request(asks(path)).await?).await,
        true => whole(h2(addr).await.send_request(asks(&format!("http://mill{path}"))).await?).await,
    }
}

#[test]
fn a_relay_that_ends_silent_connections_ends_none() {
    on_both(async || {
        let (speak, speaks) = watch::channel(false);
        let plain = start(app(&speaks)).await;
        let kept = start(app(&speaks).layer(KeepAliveLayer::new(PERIOD).early(PERIOD))).await;
        let ((plain, plain_cuts), (kept, kept_cuts)) = (cutter(plain, CUT).await, cutter(kept, CUT).await);
        let ways: Vec<_> =
            [false, true].into_iter().flat_map(|two| ["/thinks", "/late"].map(|path| (two, path))).collect();
        // The silence is too long for the relay, however long its steps are on this machine.
        let control = async {
            let control = join_all(ways.iter().map(|&(two, path)| read(plain, two, path))).await;
            speak.send(true).unwrap();
            control
        };
        let reading = join_all(ways.iter().map(|&(two, path)| async move {
            let got = read(kept, two, path).await.unwrap();
            let got = String::from_utf8(got.to_vec()).unwrap();
            let comments = got.matches(":\n").count();
            assert_eq!(got.replace(":\n", ""), "data: 0\n\ndata: 1\n\ndata: 2\n\n", "{path}, {two}");
            assert!(comments > 0, "{path}, {two}");
        }));
        let (control, _) = tokio::join!(control, reading);
        assert!(control.iter().all(Result::is_err), "without comments all are cut: {control:?}");
        assert_eq!((plain_cuts.load(Ordering::SeqCst), kept_cuts.load(Ordering::SeqCst)), (ways.len(), 0));
    });
}

#[test]
fn clients_that_leave_end_the_service() {
    on_both(async || {
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let never = move || {
            let held = Arc::clone(&held);
            async move {
                std::future::pending::<()>().await;
                drop(held);
            }
        };
        let layer = KeepAliveLayer::new(Duration::from_millis(20)).early(Duration::from_millis(1));
        let addr = start(Router::new().route("/", get(never)).layer(layer)).await;
        let idle = Arc::strong_count(&alive);
        let (mut one, mut two) = (h1(addr).await, h2(addr).await);
        let answers = [one.send_request(asks("/")).await, two.send_request(asks("http://mill/")).await];
        let mut answers = answers.map(Result::unwrap);
        for answer in &mut answers {
            assert_eq!(answer.headers()["content-type"], "text/event-stream");
            assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), ":\n");
        }
        assert!(Arc::strong_count(&alive) > idle);
        drop(answers);
        while Arc::strong_count(&alive) > idle {
            sleep(Duration::from_millis(1)).await;
        }
    });
}
