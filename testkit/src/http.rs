//! Our servers, and raw clients for tests over real sockets.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
#[cfg(feature = "files")]
use millstream::files;
use millstream::net::TcpListener;
#[cfg(feature = "server")]
use millstream::server;
use sha2::{Digest, Sha256};
use socket2::SockRef;
pub use testdata::{pages, without_dates};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tower::util::{BoxCloneSyncService, ServiceExt};

#[cfg(feature = "server")]
use crate::serving::{AnyService, any};

pub type BoxError = Box<dyn Error + Send + Sync>;
pub type AnyBody = UnsyncBoxBody<Bytes, BoxError>;
pub type Answer = Response<AnyBody>;

/// Timeout of every test.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Runs `test` on another thread, and fails if it hangs.
pub fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::sync_channel::<()>(1);
    // The thread has the name of the test, for panic messages.
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Dropped, and so signalled, even if the test panics.
        let _done = done;
        test();
    });
    let thread = thread.unwrap();
    let hangs = matches!(wait.recv_timeout(WATCHDOG), Err(mpsc::RecvTimeoutError::Timeout));
    assert!(!hangs, "the test hangs");
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    CurrentThread,
    TwoWorkers,
}

impl Flavour {
    pub const BOTH: [Self; 2] = [Self::CurrentThread, Self::TwoWorkers];

    pub fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::TwoWorkers => Builder::new_multi_thread(),
        };
        builder.worker_threads(2).enable_all().build().unwrap()
    }
}

pub fn on_both<R: Future<Output = ()>>(test: impl Fn() -> R + Send + 'static) {
    watched(move || {
        for flavour in Flavour::BOTH {
            // Shown only if the test fails.
            println!("on {flavour:?}");
            flavour.runtime().block_on(test());
        }
    });
}

/// Serves `handler` on a free port until the runtime ends.
#[cfg(feature = "server")]
pub async fn start<F, R>(handler: F) -> SocketAddr
where
    F: Fn(Request<server::RequestBody>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    start_with(None, handler).await
}

/// Like [`start`]; accepted sockets inherit a send buffer of `send_buffer` bytes, so that few bytes are in flight.
#[cfg(feature = "server")]
pub async fn start_with<F, R>(send_buffer: Option<usize>, handler: F) -> SocketAddr
where
    F: Fn(Request<server::RequestBody>) -> R + Clone + Send + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    if let Some(bytes) = send_buffer {
        SockRef::from(&listener).set_send_buffer_size(bytes).unwrap();
    }
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |request| {
        let answer = handler(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    spawn_server(listener, any(service));
    addr
}

/// Built once, for all tests.
#[cfg(feature = "server")]
fn spawn_server(listener: TcpListener, service: AnyService) {
    tokio::spawn(server::serve(listener, service).into_future());
}

/// Like `server::serve`, but `options` sets hyper's options for HTTP/1 and `adjust` those of each accepted socket.
pub async fn start_hyper<F, R, B>(
    options: impl Fn(&mut http1::Builder) + Send + 'static,
    adjust: impl Fn(&millstream::net::TcpStream) + Send + 'static,
    handler: F,
) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            adjust(&stream);
            let mut builder = http1::Builder::new();
            options(&mut builder);
            let handler = handler.clone();
            let service = tower::service_fn(move |request| {
                let answer = handler(request);
                async { Ok::<_, Infallible>(answer.await.map(boxed)) }
            });
            spawn_connection(builder, stream, BoxCloneSyncService::new(service));
        }
    });
    addr
}

/// Built once, for all tests.
fn spawn_connection(
    builder: http1::Builder,
    stream: millstream::net::TcpStream,
    service: BoxCloneSyncService<Request<Incoming>, Answer, Infallible>,
) {
    let service = service_fn(move |request| service.clone().oneshot(request));
    // Connections may end in any way.
    tokio::spawn(async move { builder.serve_connection(stream, service).await.ok() });
}

/// Starts an upstream that runs a function on each raw connection.
pub async fn raw_upstream<R: Future<Output = ()> + Send + 'static>(
    talk: impl Fn(TcpStream) -> R + Send + 'static,
) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(talk(stream));
        }
    });
    addr
}

pub fn boxed<B>(body: B) -> AnyBody
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Returns the response of `files` to `request`, its body converted by `wrap`.
#[cfg(feature = "files")]
pub async fn ask<Q, B>(files: &files::Files, request: &Request<Q>, wrap: impl FnOnce(files::FilesBody) -> B) -> Answer
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let answer = files.get(request.method(), request.uri(), request.headers()).await;
    answer.map(|body| boxed(wrap(body)))
}

pub fn sha256(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[derive(Debug)]
pub struct Raw<S = TcpStream> {
    pub io: S,
    /// Received but not yet parsed bytes.
    rest: Vec<u8>,
}

#[derive(Debug)]
pub struct Head {
    pub status: u16,
    fields: String,
}

impl Head {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn content_length(&self) -> usize {
        self.field("content-length").expect("a content-length").parse().unwrap()
    }
}

/// A body that ended before its announced length.
pub struct Cut {
    /// The received part.
    pub got: Vec<u8>,
}

impl std::fmt::Debug for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cut after {} bytes", self.got.len())
    }
}

impl Raw {
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect(addr).await.unwrap())
    }

    /// Connects with the smallest receive buffer.
    pub async fn connect_narrow(addr: SocketAddr) -> Self {
        Self::over(narrow(addr).await)
    }

    pub fn reset(self) {
        SockRef::from(&self.io).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Connects with the smallest receive buffer that the kernel permits.
pub async fn narrow(addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    socket.connect(addr).await.unwrap()
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub fn over(io: S) -> Self {
        Self { io, rest: Vec::new() }
    }

    pub async fn send(&mut self, request: impl AsRef<[u8]>) {
        self.io.write_all(request.as_ref()).await.unwrap();
        // A TLS stream keeps what its socket did not take, as when the task's budget is used up.
        self.io.flush().await.unwrap();
    }

    pub async fn ask(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
    }

    async fn more(&mut self) -> io::Result<usize> {
        let mut buf = [0; 16 << 10];
        let n = self.io.read(&mut buf).await?;
        self.rest.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    /// Returns the head of the response, or the error that ended the connection before it.
    pub async fn try_head(&mut self) -> io::Result<Head> {
        let end = loop {
            if let Some(at) = self.rest.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let fields = String::from_utf8(self.rest.drain(..end).collect()).unwrap();
        Ok(Head { status: fields.split(' ').nth(1).unwrap().parse().unwrap(), fields })
    }

    pub async fn head(&mut self) -> Head {
        self.try_head().await.unwrap()
    }

    /// Takes the received but not yet parsed bytes.
    pub fn buffered(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Returns `len` bytes of a body.
    pub async fn body(&mut self, len: usize) -> Result<Vec<u8>, Cut> {
        while self.rest.len() < len {
            if !self.more().await.is_ok_and(|n| n > 0) {
                return Err(Cut { got: std::mem::take(&mut self.rest) });
            }
        }
        Ok(self.rest.drain(..len).collect())
    }

    /// Returns status and body of the response to a `GET`.
    pub async fn get(&mut self, path: &str) -> (u16, Vec<u8>) {
        self.ask(path).await;
        let head = self.head().await;
        let body = self.body(head.content_length()).await;
        (head.status, body.expect("a whole body"))
    }

    /// Returns everything up to the end of the connection, orderly or not.
    pub async fn drain(&mut self) -> Vec<u8> {
        while self.more().await.is_ok_and(|n| n > 0) {}
        std::mem::take(&mut self.rest)
    }
}

/// Reads the type, the flags and the payload of the next frame of HTTP/2, RFC 9113 §4.1.
pub async fn frame(io: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    io.read_exact(&mut head).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    io.read_exact(&mut payload).await?;
    Ok((head[3], head[4], payload))
}

pub type H1 = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;
pub type H2 = hyper::client::conn::http2::SendRequest<Empty<Bytes>>;

async fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub async fn h1(addr: SocketAddr) -> H1 {
    h1_over(connect(addr).await).await
}

pub async fn h1_over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> H1 {
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

pub async fn h2(addr: SocketAddr) -> H2 {
    h2_over(connect(addr).await).await
}

pub async fn h2_over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> H2 {
    let exec = TokioExecutor::new();
    let (sender, connection) = hyper::client::conn::http2::handshake(exec, TokioIo::new(io)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).header(header::HOST, "mill").body(Empty::new()).unwrap()
}

/// Returns the whole body, or the error that cut it.
pub async fn whole(answer: Response<Incoming>) -> hyper::Result<Bytes> {
    Ok(answer.into_body().collect().await?.to_bytes())
}
