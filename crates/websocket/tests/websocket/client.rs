//! What the client and the service send.

use std::sync::atomic::Ordering;

use futures_util::SinkExt;
use millstream_websocket::WebSocketHub;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::*;
use crate::wire::{PARTING, Server, TAKEN, Wire};

#[tokio::test]
async fn a_service_gets_messages_and_sends_to_one_client() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let (mut one, mut other) = (server.connect("/echo").await, server.connect("/echo").await);
        until(&hub, |stats| stats.subscribers == 2).await;
        let sent = [Message::text("é"), Message::binary(vec![0; 60_000]), Message::text("")];
        for message in &sent {
            one.send(message.clone()).await.unwrap();
        }
        for message in &sent {
            assert_eq!(next(&mut one).await, *message, "{wire:?}");
        }
        send(&hub, "for all");
        assert_eq!(
            (next(&mut one).await, next(&mut other).await),
            (Message::text("for all"), Message::text("for all"))
        );
    }
}

#[tokio::test]
async fn fragments_are_one_message_and_pings_between_them_are_answered() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut socket = server.connect("/echo").await;
        let frame = |payload: &'static str, kind, ends| {
            Message::Frame(Frame::message(payload.as_bytes(), OpCode::Data(kind), ends))
        };
        socket.send(frame("a", Data::Text, false)).await.unwrap();
        socket.send(Message::Ping("p".into())).await.unwrap();
        socket.send(frame("b", Data::Continue, false)).await.unwrap();
        socket.send(frame("c", Data::Continue, true)).await.unwrap();
        assert_eq!(next(&mut socket).await, Message::Pong("p".into()), "{wire:?}");
        assert_eq!(next(&mut socket).await, Message::text("abc"), "{wire:?}");
    }
}

#[tokio::test]
async fn a_message_may_be_cut_anywhere_and_come_with_the_handshake() {
    // A masked text `abc`, and a close frame.
    let frames = [0x81, 0x83, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2, b'c' ^ 3, 0x88, 0x80, 0, 0, 0, 0];
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        for cut in 0..=frames.len() {
            let request = wire::handshake("/echo", "connection: upgrade\r\nupgrade: websocket\r\n");
            let mut stream = server.stream().await;
            stream.write_all(&[request.as_bytes(), &frames[..cut]].concat()).await.unwrap();
            wire::head(&mut stream).await;
            stream.write_all(&frames[cut..]).await.unwrap();
            let mut bytes = Vec::new();
            timeout(HANGS, stream.read_to_end(&mut bytes)).await.expect("an end in time").unwrap();
            assert!(bytes.ends_with(&[0x88, 0]), "{wire:?}, cut at {cut}: {bytes:?}");
        }
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

#[tokio::test]
async fn frames_that_come_together_are_all_answered() {
    const PINGS: usize = 200;
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut stream = server.raw("/").await;
        stream.write_all(&[0x89, 0x80, 0, 0, 0, 0].repeat(PINGS)).await.unwrap();
        let mut pongs = [0; 2 * PINGS];
        timeout(HANGS, stream.read_exact(&mut pongs)).await.expect("all in time").unwrap();
        assert_eq!(pongs.to_vec(), [0x8a, 0].repeat(PINGS), "{wire:?}");
    }
}

#[tokio::test]
async fn what_a_service_has_sent_arrives_before_the_close_frame() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut socket = server.connect("/parting").await;
        for n in 0..PARTING {
            assert_eq!(next(&mut socket).await, Message::text(n.to_string()), "{wire:?}");
        }
        assert_eq!(closed(&mut socket).await, (1000, String::new()), "{wire:?}");
    }
}

/// Without a time limit, nothing but the service wakes the session.
#[tokio::test]
async fn messages_are_read_when_another_task_has_taken_those_before() {
    for wire in Wire::ALL {
        let (hub, before) = (Hub::new(), TAKEN.load(Ordering::Relaxed));
        let server = Server::start(wire, WebSocketHub::text(&hub).idle_timeout(Duration::ZERO)).await;
        let mut socket = server.connect("/elsewhere").await;
        for text in ["1", "2", "3", "end", "4", "5"] {
            socket.send(Message::text(text)).await.unwrap();
        }
        until(&hub, |_| TAKEN.load(Ordering::Relaxed) == before + 1).await;
        // Behind the messages that nobody takes.
        socket.send(Message::Ping("p".into())).await.unwrap();
        assert_eq!(next(&mut socket).await, Message::Pong("p".into()), "{wire:?}");
    }
}
