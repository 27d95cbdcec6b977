//! Comments of `KeepAliveLayer` in event streams, also before the service has answered.

use http_body_util::BodyExt;
use millstream_layers::KeepAliveLayer;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use testkit::HANGS;
use testkit::http::{h1_over, h2_over, on_both, whole};

#[test]
fn silent_streams_get_comments_over_both_protocols() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        // Each silence lasts until the client has a comment.
        let heard = Arc::new(Semaphore::new(0));
        let hears = Arc::clone(&heard);
        let service = tower::service_fn(move |_: Request<RequestBody>| {
            let heard = Arc::clone(&hears);
            async move {
                heard.acquire().await.unwrap().forget();
                let events = futures_util::stream::unfold(0, move |n| {
                    let heard = Arc::clone(&heard);
                    async move {
                        heard.acquire().await.unwrap().forget();
                        (n < 2)
                            .then_some((Ok::<_, Infallible>(Frame::data(Bytes::from(format!("data: {n}\n\n")))), n + 1))
                    }
                });
                let response = Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
                Ok::<_, Infallible>(response.body(boxed(StreamBody::new(Box::pin(events)))).unwrap())
            }
        });
        let layer = KeepAliveLayer::new(Duration::from_millis(20)).early(Duration::from_millis(20));
        let service = tower::Layer::layer(&layer, service);
        tokio::spawn(serve(listener, service).tls(IDENTITIES[0].tls()).into_future());
        for two in [false, true] {
            let io = connect(addr, &client(BOTH, if two { &["h2"] } else { &["http/1.1"] })).await;
            let request = Request::get("https://mill/").header(header::ACCEPT, "text/event-stream");
            let request = request.header(header::HOST, "mill").body(http_body_util::Empty::<Bytes>::new()).unwrap();
            let mut answer = match two {
                false => h1_over(io).await.send_request(request).await.unwrap(),
                true => h2_over(io).await.send_request(request).await.unwrap(),
            };
            assert_eq!(answer.headers()["cache-control"], "no-store");
            let (mut got, mut heard_up_to) = (String::new(), 0);
            // Before the answer, the first event, the second one, and the end.
            for behind in ["", "", "data: 0\n\n", "data: 1\n\n"] {
                while !got[heard_up_to..].split_once(behind).is_some_and(|(_, silence)| silence.contains(":\n")) {
                    let frame = timeout(HANGS, answer.frame()).await.expect("a comment").expect("no end").unwrap();
                    got += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
                }
                heard_up_to = got.len();
                heard.add_permits(1);
            }
            got += std::str::from_utf8(&whole(answer).await.unwrap()).unwrap();
            assert_eq!(got.replace(":\n", ""), "data: 0\n\ndata: 1\n\n");
        }
    });
}
