//! WebSockets by axum, over our listener under `axum::serve` and under our own server, against tungstenite's client.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message as Sent, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{DrainSignal, Drained, serve};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::sync::CancellationToken;

use testkit::http::{Flavour, Raw, on_both, watched};
use testkit::{HANGS, alone, fds, noise};

const LARGE: usize = 1 << 20;
/// Messages and their length, which the service sends when it is told to flood. They do not fit into the sockets.
const FLOOD: (usize, usize) = (64, 256 << 10);

type Client = WebSocketStream<TcpStream>;

#[derive(Clone, Copy, Debug)]
enum Under {
    #[cfg(feature = "axum-08")]
    Axum,
    Server,
}

const UNDER: [Under; 1 + cfg!(feature = "axum-08") as usize] = [
    #[cfg(feature = "axum-08")]
    Under::Axum,
    Under::Server,
];

/// A service that echoes messages until `stop` is cancelled.
struct Service {
    addr: SocketAddr,
    stop: CancellationToken,
    /// `None` under `axum::serve`.
    ended: JoinHandle<io::Result<Option<Drained>>>,
}

impl Service {
    async fn start(under: Under) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let app = Router::new().route("/", any(upgrade)).route("/slow", any(slow)).with_state(stop.clone());
        let stopped = stop.clone().cancelled_owned();
        let ended = tokio::spawn(async move {
            match under {
                #[cfg(feature = "axum-08")]
                Under::Axum => axum::serve(listener, app).with_graceful_shutdown(stopped).await.map(|()| None),
                Under::Server => serve(listener, app).drain(stopped, HANGS * 100).await.map(Some),
            }
        });
        Self { addr, stop, ended }
    }

    async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let config = WebSocketConfig::default().max_frame_size(None);
        let url = format!("ws://{}/", self.addr);
        let (client, response) = client_async_with_config(url, stream, Some(config)).await.unwrap();
        assert_eq!(response.status(), 101);
        client
    }

    /// Stops the service, whose clients have ended or are told to.
    async fn stop(self) -> Option<Drained> {
        self.stop.cancel();
        timeout(HANGS, self.ended).await.expect("the service does not end").unwrap().unwrap()
    }
}

/// Frames that are not ready at once, so that our server takes the response from hyper.
async fn slow() -> Body {
    Body::from_stream(stream::iter(["one", "two"]).then(async |frame| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok::<_, Infallible>(frame)
    }))
}

async fn upgrade(
    ws: WebSocketUpgrade,
    State(stop): State<CancellationToken>,
    drain: Option<Extension<DrainSignal>>,
) -> Response {
    ws.on_upgrade(async move |socket| match drain {
        Some(Extension(drain)) => echo(socket, drain.draining()).await,
        None => echo(socket, stop.cancelled()).await,
    })
}

async fn echo(mut socket: WebSocket, stopped: impl Future<Output = ()>) {
    let mut stopped = std::pin::pin!(stopped);
    loop {
        let message = tokio::select! {
            message = socket.recv() => message,
            () = &mut stopped => break,
        };
        match message {
            Some(Ok(Sent::Text(text))) if text == "flood" => {
                for n in 0..FLOOD.0 {
                    let message = Bytes::from(vec![n as u8; FLOOD.1]);
                    if socket.send(Sent::Binary(message)).await.is_err() {
                        return;
                    }
                }
            }
            Some(Ok(message @ (Sent::Text(_) | Sent::Binary(_)))) => {
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            // Pings and closing are answered by the library.
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
    let away = CloseFrame { code: close_code::AWAY, reason: "restart".into() };
    if socket.send(Sent::Close(Some(away))).await.is_ok() {
        while let Some(Ok(_)) = socket.recv().await {}
    }
}

async fn next(client: &mut Client) -> Message {
    timeout(HANGS, client.next()).await.expect("no message").expect("the end").unwrap()
}

/// Whether the client has been told that the service restarts, and the connection has ended in order.
async fn is_told(mut client: Client) -> bool {
    let Message::Close(Some(frame)) = next(&mut client).await else { return false };
    assert_eq!((u16::from(frame.code), &*frame.reason), (close_code::AWAY, "restart"));
    timeout(HANGS, client.next()).await.expect("no end").is_none()
}

#[test]
fn messages_of_every_kind_and_length_come_back() {
    on_both(async || {
        for under in UNDER {
            println!("under {under:?}");
            let service = Service::start(under).await;
            let mut client = service.connect().await;
            // Lengths around those at which the header of a frame grows.
            for len in [0, 1, 125, 126, 65_535, 65_536, LARGE] {
                let bytes = Message::binary(noise(len));
                client.send(bytes.clone()).await.unwrap();
                assert!(next(&mut client).await == bytes, "{len} bytes");
                let text = Message::text("\u{fc}".repeat(len / 2));
                client.send(text.clone()).await.unwrap();
                assert!(next(&mut client).await == text, "text of {len} bytes");
            }
            let ping = Bytes::from_static(b"are you there?");
            client.send(Message::Ping(ping.clone())).await.unwrap();
            assert_eq!(next(&mut client).await, Message::Pong(ping));
            // Many before the first answer is read.
            for n in 0..1000 {
                client.feed(Message::text(n.to_string())).await.unwrap();
            }
            client.flush().await.unwrap();
            for n in 0..1000 {
                assert_eq!(next(&mut client).await, Message::text(n.to_string()));
            }
            client.send(Message::text("flood")).await.unwrap();
            for n in 0..FLOOD.0 {
                assert!(next(&mut client).await == Message::binary(vec![n as u8; FLOOD.1]), "message {n}");
            }
            // The service confirms the close, and ends the connection.
            client.close(None).await.unwrap();
            assert_eq!(next(&mut client).await, Message::Close(None));
            assert!(timeout(HANGS, client.next()).await.expect("no end").is_none());
            service.stop().await;
        }
    });
}

#[test]
fn an_upgrade_on_a_used_connection_loses_no_byte() {
    on_both(async || {
        for under in UNDER {
            let service = Service::start(under).await;
            let mut client = Raw::connect(service.addr).await;
            let requests = "GET /slow HTTP/1.1\r\nHost: mill\r\n\r\nGET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
            // Text of 5 bytes, masked by zeros.
            client.send([requests.as_bytes(), b"\x81\x85\0\0\0\0early"].concat()).await;
            assert_eq!(client.head().await.status, 200);
            assert_eq!(client.body(21).await.unwrap(), b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
            let answer = client.head().await;
            assert_eq!(answer.status, 101);
            // RFC 6455 §1.3.
            assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
            assert_eq!(client.body(7).await.unwrap(), b"\x81\x05early");
            drop(client);
            service.stop().await;
        }
    });
}

#[test]
fn a_drain_closes_a_hundred_sockets_in_order() {
    on_both(async || {
        let service = Service::start(Under::Server).await;
        let mut clients = Vec::new();
        for n in 0..100 {
            let mut client = service.connect().await;
            client.send(Message::text(n.to_string())).await.unwrap();
            assert_eq!(next(&mut client).await, Message::text(n.to_string()));
            clients.push(client);
        }
        // One of them is behind with reading. Its service is notified, and closes after it has sent everything.
        let mut slow = service.connect().await;
        slow.send(Message::text("flood")).await.unwrap();
        assert!(next(&mut slow).await == Message::binary(vec![0; FLOOD.1]));
        let drained = tokio::spawn(service.stop());
        for client in clients {
            assert!(is_told(client).await);
        }
        for n in 1..FLOOD.0 {
            assert!(next(&mut slow).await == Message::binary(vec![n as u8; FLOOD.1]), "message {n}");
        }
        assert!(is_told(slow).await);
        let drained = drained.await.unwrap().expect("our server counts");
        // A service that was sending all the time waits for the signal only afterwards: it is told at once then, and its
        // connection counts as one that finished by itself.
        let in_order = drained.notified + drained.finished;
        assert_eq!((drained.connections, in_order, drained.aborted), (101, 101, 0), "{drained:?}");
        assert!(drained.notified > 0, "{drained:?}");
    });
}

/// Returns the descriptors of this process without rings: each worker creates one on first use and keeps it.
fn without_rings() -> Vec<String> {
    fds().into_iter().filter(|fd| !fd.contains("[io_uring]")).collect()
}

#[test]
fn sockets_that_end_in_any_way_leave_no_descriptor() {
    if alone::ran_in_child() {
        return;
    }
    watched(|| {
        for flavour in Flavour::BOTH {
            for under in UNDER {
                println!("on {flavour:?}, under {under:?}");
                flavour.runtime().block_on(all_ends(under));
            }
        }
    });
}

async fn all_ends(under: Under) {
    // Opens descriptors that the process keeps.
    Service::start(under).await.stop().await;
    let before = without_rings();
    let service = Service::start(under).await;
    let mut told = Vec::new();
    for n in 0..100 {
        let mut client = service.connect().await;
        client.send(Message::text("hello")).await.unwrap();
        assert_eq!(next(&mut client).await, Message::text("hello"));
        match n % 4 {
            0 => client.close(None).await.unwrap(),
            1 => drop(client),
            2 => {
                client.send(Message::text("flood")).await.unwrap();
                SockRef::from(client.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
            }
            _ => told.push(client),
        }
    }
    let drained = tokio::spawn(service.stop());
    for client in told {
        assert!(is_told(client).await);
    }
    if let Some(drained) = drained.await.unwrap() {
        assert_eq!(drained.aborted, 0, "{drained:?}");
    }
    let since = Instant::now();
    while without_rings() != before || Snapshot::now().open_connections > 0 {
        assert!(since.elapsed() < HANGS, "{:#?}", fds());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
