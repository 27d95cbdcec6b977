//! Streams of tokens, by counts: none waits for the next, and none outlives its client.

use std::collections::HashMap;
use std::sync::Mutex;

use futures_util::future::join_all;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::*;
use testkit::HANGS;

const STREAMS: usize = 64;
const TOKENS: usize = 20;
/// Versions of the client and of the upstream: HTTP/2 where set.
const WAYS: [(bool, bool); 3] = [(false, false), (true, false), (false, true)];

/// Sends requests for `/0` and so on: over HTTP/2 on connections of at most 50 streams, else each on its own.
async fn ask(addr: SocketAddr, count: usize, by_h2: bool) -> Vec<Response<Incoming>> {
    let mut shared = Vec::new();
    for _ in 0..count.div_ceil(50).min(count * usize::from(by_h2)) {
        shared.push(h2(addr).await);
    }
    let asking = (0..count).map(|n| {
        let shared = shared.get(n / 50).cloned();
        async move {
            match shared {
                Some(mut client) => client.send_request(request(&format!("http://mill/{n}"))).await.unwrap(),
                None => h1(addr).await.send_request(request(&format!("/{n}"))).await.unwrap(),
            }
        }
    });
    join_all(asking).await
}

#[test]
fn each_token_arrives_before_the_next_is_there() {
    on_both(async || {
        for (by_h2, upstream_h2) in WAYS {
            let sources = Arc::<Mutex<HashMap<String, mpsc::Sender<String>>>>::default();
            let all = Arc::clone(&sources);
            let upstream = start(move |request| {
                let (source, tokens) = mpsc::channel(1);
                all.lock().unwrap().insert(request.uri().path().to_owned(), source);
                let tokens = stream::unfold(tokens, async |mut tokens| {
                    let token: String = tokens.recv().await?;
                    Some((Ok::<_, io::Error>(Frame::data(Bytes::from(token))), tokens))
                });
                std::future::ready(Response::new(boxed(StreamBody::new(Box::pin(tokens)))))
            })
            .await;
            let addr = proxy(plan(upstream, upstream_h2)).await;
            let passing = async {
                let mut bodies: Vec<_> = ask(addr, STREAMS, by_h2).await.into_iter().map(Response::into_body).collect();
                for n in 0..TOKENS {
                    for (i, body) in bodies.iter_mut().enumerate() {
                        let token = format!("data: token {n} of {i}\n\n");
                        let source = sources.lock().unwrap()[&format!("/{i}")].clone();
                        source.send(token.clone()).await.unwrap();
                        let mut got = Vec::new();
                        while got.len() < token.len() {
                            got.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
                        }
                        assert_eq!(got, token.as_bytes());
                    }
                }
                sources.lock().unwrap().clear();
                for body in bodies {
                    assert_eq!(body.collect().await.unwrap().to_bytes(), "", "nothing more");
                }
            };
            timeout(HANGS, passing).await.expect("each token at once");
        }
    });
}

#[test]
fn every_client_that_leaves_cancels_its_request() {
    /// Clients at a time, and how often.
    const CLIENTS: (usize, usize) = (500, 2);
    struct Seen(Arc<AtomicUsize>);
    impl Drop for Seen {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    on_both(async || {
        for (by_h2, upstream_h2) in WAYS {
            let cancelled = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&cancelled);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let upstream = listener.local_addr().unwrap();
            let service = tower::service_fn(move |_: Request<millstream::server::RequestBody>| {
                // Ends only by being dropped.
                let token = stream::unfold((Seen(Arc::clone(&count)), true), async |(seen, is_first)| {
                    if !is_first {
                        std::future::pending::<()>().await;
                    }
                    Some((Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"token"))), (seen, false)))
                });
                std::future::ready(Ok::<_, io::Error>(Response::new(boxed(StreamBody::new(Box::pin(token))))))
            });
            let limits = Limits::default().http2_streams(CLIENTS.0 as u32);
            tokio::spawn(serve(listener, service).limits(limits).into_future());
            let built = plan(upstream, upstream_h2).build().unwrap();
            let addr = proxy_of(built.clone()).await;
            for round in 1..=CLIENTS.1 {
                let mut answers = ask(addr, CLIENTS.0, by_h2).await;
                for answer in &mut answers {
                    let frame = answer.body_mut().frame().await.unwrap().unwrap();
                    assert_eq!(frame.into_data().unwrap(), "token");
                }
                assert_eq!(built.state().in_progress, CLIENTS.0);
                assert_eq!(cancelled.load(Ordering::Relaxed), (round - 1) * CLIENTS.0);
                drop(answers);
                soon("all are cancelled", || cancelled.load(Ordering::Relaxed) == round * CLIENTS.0).await;
            }
            soon("no request is left", || built.state().in_progress == 0).await;
        }
    });
}
