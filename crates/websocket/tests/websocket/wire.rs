//! Servers and clients.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request as AxumRequest;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Bytes;
use millstream::net::TcpListener;
use millstream::server::tls::Tls;
use millstream::server::tls::rustls::pki_types::{CertificateDer, ServerName};
use millstream::server::{RequestBody, serve};
use millstream_websocket::{Client, Message, WebSocketHub};
use testkit::HANGS;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{WebSocketStream, client_async};

/// The certificate and the key, and what clients trust.
static IDENTITY: LazyLock<(String, String, CertificateDer<'static>)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.into())
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Plain,
    Tls,
    /// `axum::serve` with our listener.
    Axum,
    /// `axum::serve` with tokio's.
    Tokio,
}

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Tls, Self::Axum, Self::Tokio];

    /// Whether the hub writes to the connections.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Self::Plain | Self::Axum)
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub(crate) type Socket = WebSocketStream<Box<dyn Stream>>;

pub(crate) struct Server {
    wire: Wire,
    addr: SocketAddr,
    drain: watch::Sender<bool>,
}

/// Sends each message back, up to the text `end`.
async fn echo(mut client: Client) {
    while let Some(message) = client.next().await {
        if message == Message::Text("end".to_owned()) || client.send(message).await.is_err() {
            return;
        }
    }
}

/// Services that were told of the end: no message comes, and none can be sent.
pub(crate) static TOLD: AtomicUsize = AtomicUsize::new(0);

async fn tells(mut client: Client) {
    while client.next().await.is_some() {}
    if client.send(Message::Text(String::new())).await.is_err() {
        TOLD.fetch_add(1, Ordering::Relaxed);
    }
    std::future::pending().await
}

/// A service that takes no message for a time.
async fn late(client: Client) {
    tokio::time::sleep(LATE).await;
    echo(client).await;
}

/// Time for which `/late` takes no message.
pub(crate) const LATE: Duration = Duration::from_millis(1200);

/// A service that sends all that it can at once, and ends.
async fn parting(client: Client) {
    for n in 0..PARTING {
        client.send(Message::Text(n.to_string())).await.expect("the WebSocket is open");
    }
}

/// Messages of `/parting`.
pub(crate) const PARTING: usize = 16;

/// A service whose client is in the hands of another task, which sends nothing.
async fn elsewhere(mut client: Client) {
    let taken = tokio::spawn(async move {
        while client.next().await != Some(Message::Text("end".to_owned())) {}
        // The messages that follow are discarded.
        drop(client);
        TAKEN.fetch_add(1, Ordering::Relaxed);
    });
    taken.await.unwrap();
    std::future::pending().await
}

/// Tasks of `/elsewhere` that got everything.
pub(crate) static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// `/echo` sends the messages of the client back, `/late` does so later, `/told` waits for the end, `/parting` sends and
/// ends, `/elsewhere` takes messages in another task, and other paths have events only.
fn answer<B, R: Default>(hub: &WebSocketHub, request: &mut Request<B>) -> Response<R> {
    match request.uri().path() {
        "/echo" => hub.subscribe_with(request, echo),
        "/late" => hub.subscribe_with(request, late),
        "/parting" => hub.subscribe_with(request, parting),
        "/elsewhere" => hub.subscribe_with(request, elsewhere),
        "/told" => hub.subscribe_with(request, tells),
        _ => hub.subscribe(request),
    }
}

impl Server {
    pub(crate) async fn start(wire: Wire, hub: WebSocketHub) -> Self {
        let (drain, mut drains) = watch::channel(false);
        let signal = async move { drains.wait_for(|&drains| drains).await.map(drop).unwrap_or_default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut addr = listener.local_addr().unwrap();
        let app = {
            let hub = hub.clone();
            axum::Router::new().fallback(move |mut request: AxumRequest| {
                let answer: Response<Body> = answer(&hub, &mut request);
                async { answer }
            })
        };
        match wire {
            Wire::Plain | Wire::Tls => {
                let service = tower::service_fn(move |mut request: Request<RequestBody>| {
                    let answer: Response<Empty<Bytes>> = answer(&hub, &mut request);
                    async { Ok::<_, Infallible>(answer) }
                });
                let mut server = serve(listener, service);
                if wire == Wire::Tls {
                    server = server.tls(Tls::from_pem(&IDENTITY.0, &IDENTITY.1).unwrap());
                }
                tokio::spawn(server.drain(signal, HANGS));
            }
            Wire::Axum => drop(tokio::spawn(axum::serve(listener, app).into_future())),
            Wire::Tokio => {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                addr = listener.local_addr().unwrap();
                drop(tokio::spawn(axum::serve(listener, app).into_future()));
            }
        }
        Self { wire, addr, drain }
    }

    pub(crate) fn drain(&self) {
        self.drain.send_replace(true);
    }

    pub(crate) async fn stream(&self) -> Box<dyn Stream> {
        // With a small receive buffer, so that clients that do not read are soon noticed. A smaller one than this makes the
        // kernel wait 200 ms for each kilobyte.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(128 << 10).unwrap();
        let stream = socket.connect(self.addr).await.unwrap();
        if self.wire != Wire::Tls {
            return Box::new(stream);
        }
        let client = testkit::tls::client([IDENTITY.2.clone()]).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        Box::new(TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap())
    }

    pub(crate) async fn connect(&self, path: &str) -> Socket {
        client_async(format!("ws://localhost{path}"), self.stream().await).await.unwrap().0
    }

    /// Returns a stream behind the handshake, for raw frames.
    pub(crate) async fn raw(&self, path: &str) -> Box<dyn Stream> {
        let mut stream = self.stream().await;
        let request = handshake(path, "connection: upgrade\r\nupgrade: websocket\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 101 "));
        stream
    }
}

/// Returns a request with these fields and those of a client.
pub(crate) fn handshake(path: &str, fields: &str) -> String {
    let key = "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{fields}{key}\r\n")
}

/// Reads the head of a response.
pub(crate) async fn head(stream: &mut Box<dyn Stream>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}
