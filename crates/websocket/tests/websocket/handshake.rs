//! Requests that are no handshakes, and what a handshake agrees on.

use millstream_websocket::WebSocketHub;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::wire::{Server, Wire, handshake, head};

const FIELDS: &str = "connection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n";

async fn answer(server: &Server, request: &str) -> String {
    let mut stream = server.stream().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    timeout(HANGS, head(&mut stream)).await.expect("a head in time").to_ascii_lowercase()
}

#[tokio::test]
async fn the_answer_accepts_the_key_and_one_protocol() {
    let hub = Hub::new();
    for wire in Wire::ALL {
        let server = Server::start(wire, WebSocketHub::text(&hub).protocols(["v2", "v1"])).await;
        // The key and the answer of RFC 6455 §1.3.
        let head = answer(&server, &handshake("/", FIELDS)).await;
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(head.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
        assert!(!head.contains("sec-websocket-protocol"), "{head}");
        for (offered, agreed) in [("v1, v2", Some("v1")), ("v0,v2", Some("v2")), ("v0", None)] {
            let fields = format!("{FIELDS}sec-websocket-protocol: {offered}\r\n");
            let head = answer(&server, &handshake("/", &fields)).await;
            assert_eq!(head.split_once("sec-websocket-protocol: ").map(|(_, rest)| &rest[..2]), agreed, "{head}");
        }
    }
}

#[tokio::test]
async fn other_requests_are_refused() {
    let hub = Hub::new();
    let whole = handshake("/", FIELDS);
    let cases = [
        (whole.replacen("GET", "POST", 1), "405", "allow: get"),
        (whole.replacen("HTTP/1.1", "HTTP/1.0", 1), "426", "upgrade: websocket"),
        (whole.replacen("connection: keep-alive, Upgrade\r\n", "", 1), "426", "upgrade: websocket"),
        (whole.replacen("upgrade: WebSocket", "upgrade: h2c", 1), "426", "upgrade: websocket"),
        (whole.replacen("version: 13", "version: 8", 1), "426", "sec-websocket-version: 13"),
        (whole.replacen("sec-websocket-version: 13\r\n", "", 1), "426", "sec-websocket-version: 13"),
        (whole.replacen("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ==", 1), "400", ""),
        (whole.replacen("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=!", 1), "400", ""),
        (whole.replacen("sec-websocket-key", "x-key", 1), "400", ""),
    ];
    for wire in Wire::ALL {
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        for (request, status, field) in &cases {
            let head = answer(&server, request).await;
            assert_eq!((&head[9..12], head.contains(field)), (*status, true), "{wire:?} {request}{head}");
        }
    }
    assert_eq!(hub.stats().subscribers, 0);
}

#[tokio::test]
async fn a_hub_that_is_full_or_closed_refuses_the_handshake() {
    let hub = Hub::builder().subscribers(1).build();
    let server = Server::start(Wire::Plain, WebSocketHub::text(&hub)).await;
    let socket = server.connect("/").await;
    let head = answer(&server, &handshake("/", FIELDS)).await;
    assert!(head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: "), "{head}");
    drop(socket);
    until(&hub, |stats| stats.subscribers == 0).await;
    hub.close();
    let head = answer(&server, &handshake("/", FIELDS)).await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
}
