//! Messages for many WebSockets at once, as in a chat room: axum's WebSockets over our listener and over tokio's, and
//! those of a hub.
//!
//! Each turn, a task of the server publishes 1 or 8 messages of 64 bytes on a broadcast channel; the task of each of
//! 1000 sockets sends them as they come. The next turn begins when all have arrived. A message that is sent is flushed,
//! so tokio's stream makes a call for each; ours gathers those of a turn.
//!
//! The hub has no such tasks. "hub, responses" are the same data as chunked responses: the pass of server-sent events.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::routing::any;
use axum::serve::Listener;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use millstream::metrics::Snapshot;
use millstream::net;
use millstream::server::RequestBody;
use millstream::sse::{Event, Hub, Raw};
use millstream_websocket::WebSocketHub;
use tokio::sync::{broadcast, mpsc};
use tower::service_fn;

use crate::common::contest::{Case, Contender, Run, Spent};
use crate::common::options::options;
use crate::common::server::Server;
use crate::common::suite::Suite;
use crate::common::{connect, cpu_of_others, more_files};
use crate::counted::Counted;

/// Bytes of a message, and of the header of its frame.
const LEN: usize = 64;
const HEADER: [u8; 2] = [0x81, LEN as u8];

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: bench\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

type Room = broadcast::Sender<Utf8Bytes>;

async fn join(ws: WebSocketUpgrade, State(room): State<Room>) -> axum::response::Response {
    let messages = room.subscribe();
    ws.on_upgrade(|socket| pass_on(socket, messages))
}

async fn pass_on(mut socket: WebSocket, mut messages: broadcast::Receiver<Utf8Bytes>) {
    while let Ok(message) = messages.recv().await {
        if socket.send(Message::Text(message)).await.is_err() {
            return;
        }
    }
}

fn message(number: u64) -> String {
    format!("{number:0LEN$}")
}

/// Returns the service; it publishes `each` messages for each turn.
fn service(mut turns: mpsc::Receiver<()>, each: u64) -> Router {
    let room = Room::new(16);
    let published = room.clone();
    tokio::spawn(async move {
        let mut number = 0;
        while turns.recv().await.is_some() {
            for _ in 0..each {
                // Fails without sockets, which the load would notice.
                let _ = published.send(message(number).into());
                number += 1;
            }
        }
    });
    Router::new().route("/", any(join)).with_state(room)
}

/// tokio's listener, whose streams count their calls.
struct Plain {
    listener: tokio::net::TcpListener,
    calls: Arc<AtomicU64>,
}

impl Listener for Plain {
    type Io = Counted;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Counted, Self::Addr) {
        let (stream, addr) = self.listener.accept().await.unwrap();
        (Counted::new(stream, &self.calls), addr)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

#[derive(Clone, Copy)]
enum Way {
    /// `axum::serve` on our listener.
    Ours,
    /// Our server.
    Served,
    /// `axum::serve` on tokio's listener.
    Tokio,
    /// A hub.
    Hub,
    /// A hub, whose readers have responses.
    Responses,
}

/// Serves the events of a hub, of which `each` come for each turn.
async fn serve_hub(
    listener: TcpListener,
    has_sockets: bool,
    mut turns: mpsc::Receiver<()>,
    each: u64,
) -> io::Result<()> {
    let hub = Hub::builder().keep_alive(Duration::ZERO).build();
    let (sockets, raw) = (WebSocketHub::text(&hub), hub.framed(Raw::new()));
    tokio::spawn(async move {
        let mut number = 0;
        while turns.recv().await.is_some() {
            for _ in 0..each {
                hub.send(Event::new().data(message(number))).unwrap();
                number += 1;
            }
        }
    });
    let listener = net::TcpListener::from_std(listener)?;
    if !has_sockets {
        let service = service_fn(move |request: Request<RequestBody>| {
            let response = raw.subscribe(&request);
            async { Ok::<_, Infallible>(response) }
        });
        return millstream::server::serve(listener, service).await;
    }
    let service = service_fn(move |mut request: Request<RequestBody>| {
        let response: Response<Empty<Bytes>> = sockets.subscribe(&mut request);
        async { Ok::<_, Infallible>(response) }
    });
    millstream::server::serve(listener, service).await
}

async fn serve(listener: TcpListener, way: Way, service: Router, calls: Arc<AtomicU64>) -> io::Result<()> {
    match way {
        Way::Ours => axum::serve(net::TcpListener::from_std(listener)?, service).await,
        Way::Served => millstream::server::serve(net::TcpListener::from_std(listener)?, service).await,
        Way::Tokio => {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(Plain { listener, calls }, service).await
        }
        Way::Hub | Way::Responses => unreachable!("served by `serve_hub`"),
    }
}

struct Chat {
    // Dropped before the server.
    sockets: Vec<TcpStream>,
    turns: mpsc::Sender<()>,
    _server: Server,
    each: u64,
    number: u64,
    /// Calls of tokio's streams.
    calls: Arc<AtomicU64>,
    way: Way,
    /// Calls that have sent bytes.
    sends: u64,
    messages: u64,
}

impl Chat {
    fn new(way: Way, sockets: usize, each: u64) -> Self {
        let (turns, receiver) = mpsc::channel(1);
        let calls = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&calls);
        let server = Server::start(move |listener| async move {
            match way {
                Way::Hub | Way::Responses => serve_hub(listener, matches!(way, Way::Hub), receiver, each).await,
                _ => serve(listener, way, service(receiver, each), counter).await,
            }
        });
        let mut sockets = connect(server.addr, sockets);
        for socket in &mut sockets {
            socket.write_all(REQUEST).unwrap();
        }
        for socket in &mut sockets {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let status = if let Way::Responses = way { "200" } else { "101" };
            assert!(head.starts_with(format!("HTTP/1.1 {status} ").as_bytes()), "{}", head.escape_ascii());
        }
        Self { sockets, turns, _server: server, each, number: 0, calls, way, sends: 0, messages: 0 }
    }

    /// Returns the bytes of the next turn.
    fn expected(&self) -> Vec<u8> {
        let messages = self.number..self.number + self.each;
        if let Way::Responses = self.way {
            // The events that are sent together are a chunk.
            let data: String = messages.map(message).collect();
            return format!("{:X}\r\n{data}\r\n", data.len()).into();
        }
        messages.flat_map(|number| [&HEADER[..], message(number).as_bytes()].concat()).collect()
    }

    /// Returns the calls so far. Ours are those of the process: only one server is in use at a time.
    fn calls(&self) -> u64 {
        match self.way {
            Way::Tokio => self.calls.load(Ordering::Relaxed),
            _ => Snapshot::now().writes,
        }
    }
}

impl Run for Chat {
    fn run(&mut self, turns: u64) -> Spent {
        let (start, cpu, before) = (Instant::now(), cpu_of_others(), self.calls());
        let mut got = Vec::new();
        for _ in 0..turns {
            let expected = self.expected();
            got.resize(expected.len(), 0);
            self.turns.blocking_send(()).unwrap();
            for socket in &mut self.sockets {
                socket.read_exact(&mut got).unwrap();
                assert!(got == expected, "{}", got.escape_ascii());
            }
            self.number += self.each;
        }
        self.sends += self.calls() - before;
        self.messages += turns * self.each * self.sockets.len() as u64;
        Spent { wall: start.elapsed(), cpu: cpu_of_others().saturating_sub(cpu) }
    }

    /// Returns the send calls per message.
    fn note(&mut self) -> String {
        format!("calls/message: {:.3} that send", self.sends as f64 / self.messages as f64)
    }
}

pub(crate) fn run(suite: &mut Suite) {
    // Five contenders, with both ends of their sockets in this process.
    let sockets = if options().test { 8 } else { 1000.min(more_files() / 14) };
    for each in [1, 8] {
        let title = format!("websockets, {sockets} of them, {each} messages a turn");
        suite.run(&Case::new(&title, "CPU us/message", sockets * each), || {
            let ways = [
                ("millstream", Way::Ours),
                ("millstream, server", Way::Served),
                ("tokio", Way::Tokio),
                ("hub", Way::Hub),
                ("hub, responses", Way::Responses),
            ];
            ways.map(|(name, way)| Contender { name, run: Box::new(Chat::new(way, sockets as usize, each)) }).into()
        });
    }
}
