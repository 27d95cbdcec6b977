//! Limits on request heads.

use millstream::server::Limits;

use super::{hello, start};
use testkit::http::{Raw, on_both};

fn head(len: usize) -> String {
    let frame = "GET / HTTP/1.1\r\nHost: mill\r\nX-Long: \r\n\r\n".len();
    format!("GET / HTTP/1.1\r\nHost: mill\r\nX-Long: {}\r\n\r\n", "x".repeat(len - frame))
}

#[test]
fn a_head_may_have_so_many_bytes_and_no_more() {
    on_both(async || {
        let addr = start(Limits::default(), tower::service_fn(hello)).await;
        for (len, status) in [(16 << 10, 200), ((16 << 10) + 1, 431), (60 << 10, 431), (16 << 10, 200)] {
            let mut client = Raw::connect(addr).await;
            client.send(head(len)).await;
            match client.try_head().await {
                Ok(head) => assert_eq!(head.status, status, "{len}"),
                // The response may be lost because the rest is not read.
                Err(error) => assert!(status == 431 && len > 32 << 10, "{len}: {error}"),
            }
        }
        let mut client = Raw::connect(addr).await;
        // Part of a head above the limit.
        client.send(&head(40 << 10)[..17 << 10]).await;
        assert_eq!(client.head().await.status, 431);
        assert!(client.drain().await.is_empty());
    });
}

#[test]
fn a_head_may_have_so_many_fields_and_a_path_so_many_bytes() {
    on_both(async || {
        let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: mill\r\n{}\r\n", "a: b\r\n".repeat(count - 1));
        let path = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: mill\r\n\r\n", "x".repeat(len - 1));
        for (limits, allowed) in
            [(Limits::default(), 100), (Limits::default().fields(20), 20), (Limits::default().fields(150), 150)]
        {
            let addr = start(limits, tower::service_fn(hello)).await;
            for (request, status) in
                [(fields(allowed), 200), (fields(allowed + 1), 431), (path(8 << 10), 200), (path((8 << 10) + 1), 414)]
            {
                let mut client = Raw::connect(addr).await;
                client.send(&request).await;
                let head = client.head().await;
                assert_eq!(head.status, status, "{allowed}: {}", &request[..100]);
                assert_eq!(head.field("connection"), (status != 200).then_some("close"));
            }
        }
    });
}
