//! `WebSocketHub` behind servers: plain, over TLS, and of axum; the client is that of tokio-tungstenite, or raw bytes.

mod client;
mod ends;
mod events;
mod handshake;
mod limits;
mod wire;

use std::time::Duration;

use futures_util::StreamExt;
use millstream::sse::{Event, Hub, HubStats};
use testkit::HANGS;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use wire::Socket;

pub(crate) fn send(hub: &Hub, data: impl Into<String>) -> String {
    hub.send(Event::new().data(data.into())).unwrap().to_string()
}

/// Waits until the hub has these statistics.
pub(crate) async fn until(hub: &Hub, holds: impl Fn(&HubStats) -> bool) {
    let waits = async {
        while !holds(&hub.stats()) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(HANGS, waits).await.unwrap_or_else(|_| panic!("{:?}", hub.stats()));
}

/// Returns the next message that is no ping.
pub(crate) async fn next(socket: &mut Socket) -> Message {
    loop {
        match timeout(HANGS, socket.next()).await.expect("a message in time").expect("no end").unwrap() {
            Message::Ping(_) => {}
            message => return message,
        }
    }
}

/// Returns the code and the reason of the close frame that follows.
pub(crate) async fn closed(socket: &mut Socket) -> (u16, String) {
    loop {
        if let Message::Close(frame) = next(socket).await {
            let frame = frame.expect("a code");
            // The client answers, and the server ends the connection.
            while timeout(HANGS, socket.next()).await.expect("an end in time").is_some() {}
            return (frame.code.into(), frame.reason.to_string());
        }
    }
}
