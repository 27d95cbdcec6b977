//! How HTTP/2 connections end: with their last response delivered.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use millstream::net::TcpListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use testkit::http::{frame, narrow, on_both};
use testkit::serving::serve;
use testkit::{HANGS, noise};

/// Fits into the socket of the server, and not into that of the client.
const LENGTH: usize = 64 << 10;
/// The preface, SETTINGS with windows of 1 MiB, the same for the connection, and a request without a body.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x06\x04\0\0\0\0\0\0\x04\0\x10\0\0\
    \0\0\x04\x08\0\0\0\0\0\0\x10\0\0\
    \0\0\x09\x01\x05\0\0\0\x01\x82\x86\x84\x41\x04mill";
/// Kinds of frames, and their flags.
const DATA: u8 = 0;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;

async fn next(client: &mut TcpStream) -> (u8, u8, Vec<u8>) {
    timeout(HANGS, frame(client)).await.expect("a frame in time").expect("no reset")
}

#[test]
fn frames_that_follow_the_last_response_of_a_drain_cost_the_client_no_byte() {
    on_both(async || {
        let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (asks, goes) = (Arc::clone(&asked), Arc::clone(&go));
        let service = tower::service_fn(move |_| {
            let (asked, go) = (Arc::clone(&asks), Arc::clone(&goes));
            async move {
                asked.notify_one();
                go.notified().await;
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(noise(LENGTH)))))
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (signal, signalled) = oneshot::channel::<()>();
        let ended = tokio::spawn(serve(listener, service).drain(signalled, HANGS));
        let mut client = narrow(addr).await;
        client.write_all(BEGIN).await.unwrap();
        asked.notified().await;
        signal.send(()).unwrap();
        // The server announces its end, and names its last stream once the client has answered.
        let mut last = None;
        while last != Some(1) {
            let (kind, flags, payload) = next(&mut client).await;
            match kind {
                GOAWAY => last = Some(u32::from_be_bytes(payload[..4].try_into().unwrap())),
                PING if flags & ACK == 0 => {
                    let answer = [&[0, 0, 8, PING, ACK, 0, 0, 0, 0], &payload[..]].concat();
                    client.write_all(&answer).await.unwrap();
                }
                _ => {}
            }
        }
        go.notify_one();
        for _ in 0..100 {
            // The response tells whether the connection was reset.
            let _ = client.write_all(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01").await;
            sleep(Duration::from_millis(1)).await;
        }
        let (mut got, mut is_whole) = (0, false);
        while !is_whole {
            let (kind, flags, payload) = next(&mut client).await;
            if kind == DATA {
                (got, is_whole) = (got + payload.len(), flags & END_STREAM != 0);
            }
        }
        assert_eq!(got, LENGTH);
        assert_eq!(client.read(&mut [0]).await.expect("no reset"), 0, "an orderly end");
        drop(client);
        timeout(HANGS, ended).await.expect("an end").unwrap().unwrap();
    });
}
