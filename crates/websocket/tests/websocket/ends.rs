//! How a WebSocket ends, and that nothing of it is left.

use std::sync::atomic::Ordering;

use futures_util::SinkExt;
use millstream::sse::LagPolicy;
use millstream_websocket::WebSocketHub;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;
use crate::wire::{Server, TOLD, Wire};

#[tokio::test]
async fn the_code_tells_why_the_events_end() {
    for wire in Wire::ALL {
        let hub = Hub::builder().retry(Duration::from_millis(1500)).build();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut socket = server.connect("/").await;
        until(&hub, |stats| stats.subscribers == 1).await;
        send(&hub, "last");
        hub.close();
        assert_eq!(next(&mut socket).await, Message::text("last"), "{wire:?}");
        assert_eq!(closed(&mut socket).await, (1000, "retry: 1500".to_owned()), "{wire:?}");

        let hub = Hub::builder().max_age(Duration::from_millis(50)).retry(Duration::from_millis(1500)).build();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut socket = server.connect("/").await;
        assert_eq!(closed(&mut socket).await, (1001, "retry: 1500".to_owned()), "{wire:?}");
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

#[tokio::test]
async fn a_drain_closes_all_in_order() {
    // axum tells services nothing of its shutdown.
    for wire in [Wire::Plain, Wire::Tls] {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut sockets = vec![server.connect("/").await, server.connect("/echo").await];
        until(&hub, |stats| stats.subscribers == 2).await;
        send(&hub, "last");
        server.drain();
        for socket in &mut sockets {
            assert_eq!(next(socket).await, Message::text("last"), "{wire:?}");
            assert_eq!(closed(socket).await.0, 1001, "{wire:?}");
        }
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

#[tokio::test]
async fn a_slow_reader_is_told_so() {
    for wire in Wire::ALL {
        let hub = Hub::builder().queue(4).replay(4).lag_policy(LagPolicy::Disconnect).build();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut socket = server.connect("/").await;
        until(&hub, |stats| stats.subscribers == 1).await;
        // More than the buffers of both sockets hold.
        let event = "x".repeat(1 << 20);
        for _ in 0..16 {
            send(&hub, &*event);
            tokio::task::yield_now().await;
        }
        assert_eq!(closed(&mut socket).await.0, 1013, "{wire:?}");
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_or_leaves_is_no_subscriber() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        for path in ["/", "/echo"] {
            let mut sockets = Vec::new();
            for _ in 0..4 {
                sockets.push(server.connect(path).await);
            }
            until(&hub, |stats| stats.subscribers == 4).await;
            for (n, mut socket) in sockets.into_iter().enumerate() {
                if n % 2 == 0 {
                    let code = CloseFrame { code: CloseCode::Library(4000), reason: "bye".into() };
                    socket.close(Some(code)).await.unwrap();
                    assert_eq!(closed(&mut socket).await, (4000, "bye".to_owned()), "{wire:?}");
                }
            }
            until(&hub, |stats| stats.subscribers == 0).await;
        }
    }
}

#[tokio::test]
async fn the_end_of_the_service_closes() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut socket = server.connect("/echo").await;
        socket.send(Message::text("end")).await.unwrap();
        // Not for the service any more.
        socket.send(Message::text("late")).await.unwrap();
        assert_eq!(closed(&mut socket).await, (1000, String::new()), "{wire:?}");
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

/// The client does not answer the close frame, so its connection ends later.
#[tokio::test]
async fn a_service_is_told_of_the_end_at_once() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let told = TOLD.load(Ordering::Relaxed);
        let _silent = server.raw("/told").await;
        until(&hub, |stats| stats.subscribers == 1).await;
        hub.close();
        let waits = async {
            while TOLD.load(Ordering::Relaxed) == told {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(HANGS, waits).await.unwrap_or_else(|_| panic!("{wire:?}: the service was not told"));
    }
}
