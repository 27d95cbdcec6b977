//! Requests that wait for the SETTINGS of an HTTP/2 upstream.

use tokio::sync::Notify;
use tokio::time::sleep;

use super::shared::{EMPTY, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, SETTINGS, ask, frame};
use super::*;

/// A GOAWAY that announces the end of the connection: the last stream is not known (RFC 9113 §6.8).
const ANNOUNCED: [u8; 8] = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Starts an upstream whose first connection sends `first` at once, but not before it is told to, and answers nothing else.
async fn upstream(first: Vec<u8>, told: Arc<Notify>) -> SocketAddr {
    let connections = AtomicUsize::new(0);
    raw_upstream(move |stream| {
        let is_first = connections.fetch_add(1, Ordering::Relaxed) == 0;
        let (first, told) = (first.clone(), Arc::clone(&told));
        async move {
            if is_first {
                let mut frames = Frames::silent(stream).await;
                told.notified().await;
                frames.send_all(&first).await;
                while frames.request().await.is_some() {}
                return;
            }
            let mut frames = Frames::begin(stream).await;
            while let Some((id, _)) = frames.request().await {
                frames.answer(id).await;
            }
        }
    })
    .await
}

async fn until_in_progress(proxy: &Proxy, requests: usize) {
    while proxy.state().in_progress < requests {
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_request_that_waits_while_its_connection_begins_and_ends_is_sent_over_another() {
    on_both(async || {
        let first = [
            frame(SETTINGS, 0, 0, &[]),
            frame(GOAWAY, 0, 0, &ANNOUNCED),
            frame(HEADERS, END_STREAM | END_HEADERS, 1, EMPTY),
        ];
        let told = Arc::new(Notify::new());
        let proxy = plan(upstream(first.concat(), Arc::clone(&told)).await, true).build().unwrap();
        let addr = proxy_of(proxy.clone()).await;
        let first = tokio::spawn(async move { ask(addr, "GET", b"").await });
        until_in_progress(&proxy, 1).await;
        let second = tokio::spawn(async move { ask(addr, "POST", b"hello").await });
        until_in_progress(&proxy, 2).await;
        // Time in which the second request could be given to the connection.
        sleep(Duration::from_millis(50)).await;
        told.notify_one();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (200, 200));
    });
}

#[test]
fn an_upstream_without_settings_keeps_requests_waiting_for_the_connect_timeout() {
    on_both(async || {
        let upstream = upstream(Vec::new(), Arc::new(Notify::new())).await;
        // Long enough for the other connection, on a busy machine too.
        let plan = plan(upstream, true).connect_timeout(Duration::from_secs(4));
        let proxy = plan.build().unwrap();
        let addr = proxy_of(proxy.clone()).await;
        let first = tokio::spawn(async move { ask(addr, "GET", b"").await });
        until_in_progress(&proxy, 1).await;
        assert_eq!(ask(addr, "GET", b"").await, 504);
        assert_eq!(ask(addr, "GET", b"").await, 200, "over another connection");
        assert_eq!(proxy.state().in_progress, 1, "the first request waits for its answer");
        first.abort();
    });
}
