//! Comments of `KeepAliveLayer` in event streams, also before the service has answered.

use millstream_layers::KeepAliveLayer;
use tokio::time::sleep;

use super::*;
use testkit::http::{h1_over, h2_over, on_both, whole};

#[test]
fn silent_streams_get_comments_over_both_protocols() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let service = tower::service_fn(|_: Request<RequestBody>| async {
            sleep(Duration::from_millis(1000)).await;
            let events = futures_util::stream::unfold(0, async |n| {
                sleep(Duration::from_millis(1000)).await;
                (n < 2).then_some((Ok::<_, Infallible>(Frame::data(Bytes::from(format!("data: {n}\n\n")))), n + 1))
            });
            let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
            Ok::<_, Infallible>(response.body(boxed(StreamBody::new(Box::pin(events)))).unwrap())
        });
        let layer = KeepAliveLayer::new(Duration::from_millis(20)).early(Duration::from_millis(20));
        let service = tower::Layer::layer(&layer, service);
        tokio::spawn(serve(listener, service).tls(IDENTITIES[0].tls()).into_future());
        for two in [false, true] {
            let io = connect(addr, &client(BOTH, if two { &["h2"] } else { &["http/1.1"] })).await;
            let request = Request::get("https://mill/").header(header::ACCEPT, "text/event-stream");
            let request = request.header(header::HOST, "mill").body(http_body_util::Empty::<Bytes>::new()).unwrap();
            let answer = match two {
                false => h1_over(io).await.send_request(request).await.unwrap(),
                true => h2_over(io).await.send_request(request).await.unwrap(),
            };
            assert_eq!(answer.headers()["cache-control"], "no-store");
            let got = String::from_utf8(whole(answer).await.unwrap().to_vec()).unwrap();
            assert_eq!(got.replace(":\n", ""), "data: 0\n\ndata: 1\n\n");
            // Before the first event, between them, and before the end.
            let places: Vec<_> = got.split("data: ").map(|part| part.contains(":\n")).collect();
            assert_eq!(places, [true; 3], "{got:?}");
        }
    });
}
