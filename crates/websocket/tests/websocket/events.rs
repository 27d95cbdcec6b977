//! Events as messages.

use futures_util::SinkExt;
use millstream::sse::LagPolicy;
use millstream_websocket::WebSocketHub;
use tokio::io::AsyncReadExt;

use super::*;
use crate::wire::{Server, Wire};

/// Lengths around those at which the head of a frame grows.
const LENGTHS: [usize; 8] = [0, 1, 125, 126, 127, 65_535, 65_536, 200_000];

#[tokio::test]
async fn all_wires_have_the_same_frames() {
    let mut all = Vec::new();
    for wire in Wire::ALL {
        let hub = Hub::builder().retry(Duration::from_secs(2)).build();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut streams = vec![server.raw("/").await, server.raw("/").await];
        until(&hub, |stats| (stats.subscribers, stats.direct) == (2, if wire.is_direct() { 2 } else { 0 })).await;
        let mut expected = Vec::new();
        for len in LENGTHS {
            let data = "x".repeat(len);
            send(&hub, &*data);
            expected.push(0x81);
            match len {
                0..126 => expected.push(len as u8),
                126..65_536 => expected.extend([&[126][..], &u16::to_be_bytes(len as u16)].concat()),
                _ => expected.extend([&[127][..], &u64::to_be_bytes(len as u64)].concat()),
            }
            expected.extend(data.bytes());
        }
        hub.close();
        expected.extend([&[0x88, 13, 0x03, 0xe8][..], b"retry: 2000"].concat());
        for stream in &mut streams {
            let mut bytes = vec![0; expected.len()];
            timeout(HANGS, stream.read_exact(&mut bytes)).await.expect("all in time").unwrap();
            assert!(bytes == expected, "{wire:?}");
            all.push(bytes);
        }
        drop(streams);
        until(&hub, |stats| stats.subscribers == 0).await;
    }
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}

#[tokio::test]
async fn an_event_is_text_or_json_or_bytes() {
    let hub = Hub::builder().replay(2).queue(2).lag_policy(LagPolicy::DropOldest).build();
    let framings = [WebSocketHub::text(&hub), WebSocketHub::json(&hub), WebSocketHub::binary(&hub)];
    let mut sockets = Vec::new();
    for framing in framings {
        let server = Server::start(Wire::Plain, framing).await;
        sockets.push((server.connect("/").await, server));
    }
    until(&hub, |stats| stats.subscribers == 3).await;
    let id = hub.send(Event::new().event("tick").data("{\n\"n\": 1}")).unwrap();
    // Events without data are no messages.
    hub.send(Event::new().event("empty")).unwrap();
    let [(text, _), (json, _), (binary, _)] = &mut sockets[..] else { unreachable!() };
    assert_eq!(next(text).await, Message::text("{\n\"n\": 1}"));
    let expected = format!(r#"{{"id":"{id}","event":"tick","data":{{ "n": 1}}}}"#);
    assert_eq!(next(json).await, Message::text(expected));
    assert_eq!(next(binary).await, Message::binary(&b"{\n\"n\": 1}"[..]));
    // A reader behind the ring is told what it has missed, and continues.
    for n in 2..10 {
        send(&hub, format!("{n}"));
    }
    for kind in [WebSocketHub::text(&hub), WebSocketHub::json(&hub), WebSocketHub::binary(&hub)] {
        let server = Server::start(Wire::Plain, kind).await;
        let mut late = server.connect(&format!("/?lastEventId={id}")).await;
        let gap = next(&mut late).await.into_text().unwrap();
        assert!(gap.starts_with(r#"{"gap":{"reason":"#), "{gap}");
        let last = [next(&mut late).await, next(&mut late).await];
        assert!(last[1].to_text().unwrap().contains('9'), "{last:?}");
    }
}

#[tokio::test]
async fn a_client_continues_behind_an_id() {
    for wire in Wire::ALL {
        let hub = Hub::new();
        let server = Server::start(wire, WebSocketHub::json(&hub)).await;
        let ids = ["1", "2", "3"].map(|data| send(&hub, data));
        let mut socket = server.connect(&format!("/?lastEventId={}", ids[0])).await;
        for n in [2, 3] {
            let expected = format!(r#"{{"id":"{}","data":{n}}}"#, ids[n - 1]);
            assert_eq!(next(&mut socket).await, Message::text(expected), "{wire:?}");
        }
        socket.close(None).await.unwrap();
    }
}

/// The hub, the service and the protocol write to the same socket from two threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_and_pongs_stand_between_events() {
    const EVENTS: usize = 300;
    for wire in Wire::ALL {
        let hub = Hub::builder().queue(EVENTS).build();
        let server = Server::start(wire, WebSocketHub::text(&hub)).await;
        let mut sockets = Vec::new();
        for _ in 0..8 {
            sockets.push(server.connect("/echo").await);
        }
        until(&hub, |stats| stats.subscribers == 8).await;
        let clients: Vec<_> = sockets
            .into_iter()
            .map(|mut socket| {
                tokio::spawn(async move {
                    let (mut events, mut replies, mut pongs, mut asked) = (0, 0, 0, 0);
                    while events < EVENTS || replies < EVENTS || pongs < EVENTS {
                        if asked < EVENTS && asked <= events {
                            socket.send(Message::Ping(format!("{asked}").into())).await.unwrap();
                            socket.send(Message::binary(vec![asked as u8; 300])).await.unwrap();
                            asked += 1;
                        }
                        match next(&mut socket).await {
                            Message::Text(text) => {
                                assert_eq!(text.as_str(), format!("{events} ").repeat(events * 10));
                                events += 1;
                            }
                            Message::Binary(bytes) => {
                                assert_eq!(bytes, vec![replies as u8; 300]);
                                replies += 1;
                            }
                            Message::Pong(bytes) => {
                                assert_eq!(bytes, format!("{pongs}"));
                                pongs += 1;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    (events, replies, pongs)
                })
            })
            .collect();
        for n in 0..EVENTS {
            send(&hub, format!("{n} ").repeat(n * 10));
            tokio::task::yield_now().await;
        }
        for client in clients {
            assert_eq!(timeout(HANGS * 2, client).await.expect("all in time").unwrap(), (EVENTS, EVENTS, EVENTS));
        }
        until(&hub, |stats| stats.subscribers == 0).await;
    }
}
