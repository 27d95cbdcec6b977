//! Interim responses, and bodies that wait for one.

use super::*;

const ASK: &str = "POST / HTTP/1.1\r\nHost: mill\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

/// Starts an upstream that sends this after the head of a request, and after its body that it is `5` bytes long.
async fn after_head(sent: &'static [u8]) -> SocketAddr {
    raw_upstream(move |mut stream| async move {
        let head = head_of(&mut stream).await.to_lowercase();
        assert!(head.contains("expect: 100-continue"), "{head}");
        stream.write_all(sent).await.unwrap();
        let mut body = [0; 5];
        if stream.read_exact(&mut body).await.is_ok() {
            assert_eq!(&body, b"hello");
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        }
    })
    .await
}

#[test]
fn an_upload_that_the_upstream_refuses_is_not_asked_for() {
    on_both(async || {
        let upstream = after_head(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n").await;
        let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
        client.send(ASK).await;
        assert_eq!(client.head().await.status, 413, "the first response");
    });
}

#[test]
fn an_upload_is_asked_for_when_the_upstream_does() {
    on_both(async || {
        // The last one does not say so.
        for interim in [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b""] {
            let upstream = after_head(interim).await;
            let mut client = Raw::connect(proxy(plan(upstream, false)).await).await;
            client.send(ASK).await;
            assert_eq!(client.head().await.status, 100);
            client.send("hello").await;
            let head = client.head().await;
            assert_eq!((head.status, client.body(2).await.unwrap()), (200, b"ok".to_vec()));
        }
    });
}

#[test]
fn an_upload_over_http2_waits_for_nothing() {
    on_both(async || {
        let mut client = Raw::connect(proxy(plan(start(mirror).await, true)).await).await;
        client.send(ASK).await;
        assert_eq!(client.head().await.status, 100);
        client.send("hello").await;
        assert_eq!(client.head().await.status, 200);
    });
}

#[test]
fn early_hints_end_here() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            head_of(&mut stream).await;
            let interim = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n".repeat(20);
            let last = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(format!("HTTP/1.1 102 Processing\r\n\r\n{interim}{last}").as_bytes()).await.unwrap();
        })
        .await;
        let addr = proxy(plan(upstream, false)).await;
        let mut client = Raw::connect(addr).await;
        client.ask("/").await;
        let head = client.head().await;
        assert_eq!((head.status, head.field("link")), (200, None));
        assert_eq!(client.body(2).await.unwrap(), b"ok");
        let answer = h2(addr).await.send_request(request("http://mill/")).await.unwrap();
        assert_eq!((answer.status(), answer.headers().get("link")), (StatusCode::OK, None));
        assert_eq!(whole(answer).await.unwrap(), "ok");
    });
}
