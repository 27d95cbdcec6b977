//! Clients that violate the protocol or a limit.

use futures_util::SinkExt;
use millstream_websocket::WebSocketHub;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::*;
use crate::wire::{LATE, Server, Wire};

#[tokio::test]
async fn a_violation_is_answered_with_its_code() {
    let too_long = [&[0x82, 0xfe, 4, 1][..], &[0; 4], &[0; 1025]].concat();
    let long_ping = [&[0x89, 0xfe, 0, 126][..], &[0; 4], &[0; 126]].concat();
    let cases: [(&[u8], u16); 6] = [
        // Not masked.
        (&[0x81, 1, b'a'], 1002),
        // A reserved opcode, a reserved bit, a ping that is too long.
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        (&[0xc1, 0x80, 0, 0, 0, 0], 1002),
        (&long_ping, 1002),
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        (&too_long, 1009),
    ];
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub).max_message(1024)).await;
        for path in ["/", "/echo"] {
            for (frame, code) in cases {
                let mut stream = server.raw(path).await;
                stream.write_all(frame).await.unwrap();
                // What follows is not parsed, and resets nothing.
                stream.write_all(&[0x81, 0x80, 0, 0, 0, 0]).await.unwrap();
                let mut answer = [0; 4];
                timeout(HANGS, stream.read_exact(&mut answer)).await.expect("a code in time").unwrap();
                assert_eq!((answer[0], u16::from_be_bytes([answer[2], answer[3]])), (0x88, code), "{wire:?} {frame:?}");
                timeout(HANGS, stream.read_to_end(&mut Vec::new())).await.expect("an end in time").unwrap();
            }
        }
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

#[tokio::test]
async fn a_message_of_the_greatest_length_arrives() {
    let hub = Hub::new();
    let server = Server::start(Wire::Plain, WebSocketHub::text(&hub).max_message(1024)).await;
    let mut socket = server.connect("/echo").await;
    socket.send(Message::binary(vec![1; 1024])).await.unwrap();
    assert_eq!(next(&mut socket).await, Message::binary(vec![1; 1024]));
}

#[tokio::test]
async fn a_silent_client_is_disconnected_and_one_that_answers_pings_is_not() {
    tokio::join!(silence(Wire::Plain), silence(Wire::Tls), silence(Wire::Axum), silence(Wire::Tokio));
}

async fn silence(wire: Wire) {
    // Far longer than a machine stands still: the client has to answer a ping within it.
    let limit = Duration::from_secs(6);
    let hub = Hub::builder().keep_alive(limit / 24).build();
    let server = Server::start(wire, WebSocketHub::text(&hub).idle_timeout(limit)).await;
    let since = Instant::now();
    let mut silent = server.raw("/").await;
    let mut answers = server.connect("/").await;
    let mut frames = Vec::new();
    let silent = async {
        timeout(HANGS, silent.read_to_end(&mut frames)).await.expect("an end in time").unwrap();
        since.elapsed()
    };
    // Reading answers the pings.
    let reads = timeout(limit + limit / 2, async { while answers.next().await.unwrap().unwrap().is_ping() {} });
    let (lived, read) = tokio::join!(silent, reads);
    assert!(read.is_err(), "{wire:?}: only pings");
    assert!(lived >= limit, "{wire:?}: {lived:?}");
    let pings = frames.strip_suffix(&[0x88, 2, 0x03, 0xf0]).expect("1008");
    assert!(pings.len() >= 2 && pings.chunks(2).all(|ping| ping == [0x89, 0]), "{wire:?}: {pings:?}");
    until(&hub, |stats| stats.subscribers == 1).await;
    send(&hub, "1");
    assert_eq!(next(&mut answers).await, Message::text("1"), "{wire:?}");
}

/// The hub sends pings to readers without events only.
#[tokio::test]
async fn a_client_that_only_listens_stays_connected_however_many_events_it_gets() {
    tokio::join!(listening(Wire::Plain), listening(Wire::Tls), listening(Wire::Axum), listening(Wire::Tokio));
}

async fn listening(wire: Wire) {
    // As in `silence`.
    let limit = Duration::from_secs(6);
    let hub = Hub::new();
    let server = Server::start(wire, WebSocketHub::text(&hub).idle_timeout(limit)).await;
    let since = Instant::now();
    let mut silent = server.raw("/").await;
    let mut answers = server.connect("/").await;
    until(&hub, |stats| stats.subscribers == 2).await;
    let mut frames = Vec::new();
    let silent = async {
        timeout(HANGS, silent.read_to_end(&mut frames)).await.expect("an end in time").unwrap();
        since.elapsed()
    };
    let reads = async {
        let mut sent = 0;
        while since.elapsed() < limit + limit / 2 {
            send(&hub, sent.to_string());
            assert_eq!(next(&mut answers).await, Message::text(sent.to_string()), "{wire:?}");
            sent += 1;
            sleep(limit / 100).await;
        }
    };
    let (lived, ()) = tokio::join!(silent, reads);
    assert!(lived >= limit, "{wire:?}: {lived:?}");
    assert!(frames.ends_with(&[0x88, 2, 0x03, 0xf0]), "{wire:?}: 1008");
}

#[tokio::test]
async fn control_frames_are_no_messages() {
    let ping = [&[0x89, 0x80 | 125][..], &[0; 4], &[7; 125]].concat();
    let hub = Hub::new();
    let server = Server::start(Wire::Plain, WebSocketHub::text(&hub).max_message(0)).await;
    let mut stream = server.raw("/").await;
    stream.write_all(&ping).await.unwrap();
    let mut pong = [0; 127];
    timeout(HANGS, stream.read_exact(&mut pong)).await.expect("an answer in time").unwrap();
    assert_eq!((pong[..2].to_vec(), &pong[2..]), (vec![0x8a, 125], &[7; 125][..]));
    stream.write_all(&[0x81, 0x81, 0, 0, 0, 0, b'a']).await.unwrap();
    let mut close = Vec::new();
    timeout(HANGS, stream.read_to_end(&mut close)).await.expect("an end in time").unwrap();
    assert_eq!(close, [0x88, 2, 0x03, 0xf1]);
}

/// A client that sends pings and reads no answers is not read either.
#[tokio::test]
async fn answers_do_not_pile_up() {
    let ping = [&[0x89, 0x80 | 125][..], &[0; 4], &[7; 125]].concat();
    let flood = ping.repeat(8 << 10);
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut stream = server.raw("/").await;
        let mut sent = 0;
        while timeout(Duration::from_millis(500), stream.write_all(&flood)).await.is_ok() {
            sent += flood.len();
            assert!(sent < 64 << 20, "{wire:?}: the server reads on");
        }
        drop(stream);
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_waits_for_the_service_is_not_silent() {
    let hub = Hub::new();
    let server = Server::start(Wire::Plain, WebSocketHub::text(&hub).idle_timeout(LATE / 4)).await;
    let mut socket = server.connect("/late").await;
    for n in 0..4 {
        socket.send(Message::text(format!("{n}"))).await.unwrap();
    }
    for n in 0..4 {
        assert_eq!(next(&mut socket).await, Message::text(format!("{n}")));
    }
}

#[tokio::test]
async fn a_client_that_does_not_answer_a_close_frame_is_disconnected() {
    let close = |wire| async move {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::text(&hub).idle_timeout(Duration::ZERO)).await;
        let mut stream = server.raw("/").await;
        hub.close();
        let since = Instant::now();
        let mut frame = Vec::new();
        let ended = timeout(HANGS, stream.read_to_end(&mut frame)).await.expect("an end in time");
        // Over TLS, it is not announced.
        assert!(ended.is_ok() || wire == Wire::Tls, "{wire:?}: {ended:?}");
        assert_eq!(frame[..4], [0x88, frame.len() as u8 - 2, 0x03, 0xe8], "{wire:?}");
        assert!(since.elapsed() >= Duration::from_secs(5), "{wire:?}: {:?}", since.elapsed());
    };
    tokio::join!(close(Wire::Plain), close(Wire::Tls), close(Wire::Axum), close(Wire::Tokio));
}
