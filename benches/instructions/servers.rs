//! The servers. Each prints its address, the address of its control connection and its process id, and runs until it is killed.
//!
//! A byte on the control connection is a turn: one message for each reader.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::sse::{self, Sse};
use axum::routing::{any, get};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use millstream::middleware::Measure;
use millstream::net;
use millstream::server::tls::Tls;
use millstream::sse::{Event, EventBody, Hub};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_rustls::rustls::crypto::ring;
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic::transport::Server as Tonic;
use tonic::transport::server::TcpIncoming;
use tonic::{Status, body};
use tonic_prost::ProstCodec;
use tower::Layer;

use crate::message::{GrpcMessage, Watch};
use crate::{floor, keys};

/// The body of `/hello`.
pub(crate) const HELLO: &str = r#"{"hello": 1}"#;
/// A token, an event and a message of a WebSocket.
pub(crate) const TOKEN: &str = "data: {\"token\": \"hello world this is\"}\n\n";
/// Bytes of the data of a hub's event, of a message of a WebSocket and of gRPC.
pub(crate) const LEN: usize = 64;

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Turns = broadcast::Sender<()>;

/// The turns that the client asks for.
static TURNS: OnceLock<Turns> = OnceLock::new();
static HUB: OnceLock<Hub> = OnceLock::new();

pub(crate) fn serve(name: &str) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let control = TcpListener::bind("127.0.0.1:0").await?;
        let listener = TcpListener::from_std(measuring::socket::listener().and_then(nonblocking)?)?;
        println!("{} {} {}", listener.local_addr()?, control.local_addr()?, std::process::id());
        let turns = TURNS.get_or_init(|| Turns::new(16));
        let hub = HUB.get_or_init(|| Hub::builder().subscribers(1 << 10).build());
        tokio::spawn(async move {
            let (mut control, _) = control.accept().await?;
            loop {
                for _ in 0..control.read(&mut [0; 1]).await? {
                    // Fails without readers, which the client would notice.
                    let _ = turns.send(());
                    let _ = hub.send(Event::new().data("x".repeat(LEN)));
                }
            }
            #[expect(unreachable_code, reason = "the type of the errors")]
            io::Result::Ok(())
        });
        // In a task, as servers run: the future of `block_on` is polled in another way.
        tokio::spawn(run(name.to_owned(), listener)).await?
    })
}

fn nonblocking(listener: std::net::TcpListener) -> io::Result<std::net::TcpListener> {
    listener.set_nonblocking(true).map(|()| listener)
}

async fn run(name: String, tokio: TcpListener) -> io::Result<()> {
    let ours = async |tokio: TcpListener| net::TcpListener::from_std(tokio.into_std()?);
    let service = tower::service_fn(answer);
    match name.as_str() {
        "hyper" | "stock" | "stock-untimed" | "echo" => loop {
            let (stream, _) = tokio.accept().await?;
            match name.as_str() {
                "hyper" => drop(tokio::spawn(hyper(TokioIo::new(stream)))),
                "echo" => drop(tokio::spawn(echo(stream))),
                _ => drop(tokio::spawn(stock(stream, name == "stock"))),
            }
        },
        "hyper-ours" | "echo-ours" => {
            let listener = ours(tokio).await?;
            loop {
                let (stream, _) = listener.accept().await?;
                match name.as_str() {
                    "hyper-ours" => drop(tokio::spawn(hyper(stream))),
                    _ => drop(tokio::spawn(echo(stream))),
                }
            }
        }
        "serve" => millstream::server::serve(ours(tokio).await?, service).await,
        "serve-measured" => millstream::server::serve(ours(tokio).await?, Measure::new().layer(service)).await,
        "hub" => millstream::server::serve(ours(tokio).await?, tower::service_fn(subscribe)).await,
        "hub-tls" => {
            // The cryptography of the rival.
            ring::default_provider().install_default().expect("there is no other one");
            let (certificate, key) = keys::own().map_err(io::Error::other)?;
            let tls = Tls::from_pem(certificate, key).map_err(io::Error::other)?;
            millstream::server::serve(ours(tokio).await?, tower::service_fn(subscribe)).tls(tls).await
        }
        "sent" => floor::serve(tokio, None, TURNS.get().expect("it is set").subscribe(), &chunk()).await,
        "sealed" => {
            floor::serve(tokio, Some(floor::tls()?), TURNS.get().expect("it is set").subscribe(), &chunk()).await
        }
        "axum" => axum::serve(tokio, router()).await,
        "axum-ours" => axum::serve(ours(tokio).await?, router()).await,
        "axum-serve" => millstream::server::serve(ours(tokio).await?, router()).await,
        "grpc" => {
            let incoming = TcpIncoming::from(tokio).with_nodelay(Some(true));
            Tonic::builder().serve_with_incoming(Messages, incoming).await.map_err(io::Error::other)
        }
        "grpc-ours" => {
            let incoming = ours(tokio).await?.incoming();
            Tonic::builder().serve_with_incoming(Messages, incoming).await.map_err(io::Error::other)
        }
        _ => Err(io::Error::other("no such server")),
    }
}

async fn hyper(io: impl hyper::rt::Read + hyper::rt::Write + Unpin) {
    // The client ends its connections when it has what it wants.
    let _ = http1::Builder::new().serve_connection(io, service_fn(answer)).await;
}

async fn stock(stream: TcpStream, is_timed: bool) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    if is_timed {
        http.http1().timer(TokioTimer::new());
    }
    let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        match stream.read(&mut buf).await? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n]).await?,
        }
    }
}

/// The events of the hub, which writes them in its pass: no layer hides the type of the body.
async fn subscribe<B>(request: Request<B>) -> Result<Response<EventBody>, Infallible> {
    Ok(HUB.get().expect("it is set").subscribe(&request))
}

/// An event as the hub sends it.
fn chunk() -> Vec<u8> {
    let event = format!("data: {}\nid: 0123456789ab-1\n\n", "x".repeat(LEN));
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}

async fn answer<B>(request: Request<B>) -> Result<Response<Body>, Infallible> {
    let token = || Ok(Frame::data(Bytes::from_static(TOKEN.as_bytes())));
    Ok(match request.uri().path() {
        "/tokens" => events(stream::iter((0..100).map(move |_| token()))),
        "/token" => events(turns().map(move |()| token())),
        "/event" => HUB.get().expect("it is set").subscribe(&request).map(|body| body.boxed_unsync()),
        _ => response("application/json", Full::from(HELLO).boxed_unsync()),
    })
}

fn events(frames: impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static) -> Response<Body> {
    response("text/event-stream", StreamBody::new(frames).boxed_unsync())
}

fn response(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A stream of turns.
fn turns() -> impl Stream<Item = ()> + Send + 'static {
    let turns = TURNS.get().expect("it is set").subscribe();
    stream::unfold(turns, async |mut turns| turns.recv().await.ok().map(|()| ((), turns)))
}

fn router() -> Router {
    let hello = async || ([(header::CONTENT_TYPE, "application/json")], HELLO);
    let event = async || Sse::new(turns().map(|()| Ok::<_, Infallible>(sse::Event::default().data("x".repeat(LEN)))));
    Router::new().route("/hello", get(hello)).route("/event", get(event)).route("/ws/{each}", any(join)).with_state(())
}

async fn join(
    ws: WebSocketUpgrade,
    each: axum::extract::Path<usize>,
    State(()): State<()>,
) -> axum::response::Response {
    let turns = turns();
    ws.on_upgrade(async move |mut socket| {
        let mut turns = std::pin::pin!(turns);
        while turns.next().await.is_some() {
            for _ in 0..*each {
                if socket.send(Message::Text("x".repeat(LEN).into())).await.is_err() {
                    return;
                }
            }
        }
    })
}

/// A service for tonic: a message a turn, or as many as the client takes.
#[derive(Clone, Copy, Debug)]
struct Messages;

impl NamedService for Messages {
    const NAME: &'static str = "millstream.bench.Messages";
}

impl tower::Service<Request<body::Body>> for Messages {
    type Response = Response<body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<body::Body>) -> Self::Future {
        Box::pin(async {
            let mut grpc = Grpc::new(ProstCodec::<GrpcMessage, Watch>::default());
            Ok(grpc.server_streaming(Self, request).await)
        })
    }
}

impl ServerStreamingService<Watch> for Messages {
    type Response = GrpcMessage;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<GrpcMessage, Status>> + Send>>;
    type Future = Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Watch>) -> Self::Future {
        let message = || Ok(GrpcMessage { payload: Bytes::from_static(&[b'x'; LEN]) });
        let messages: Self::ResponseStream = if request.into_inner().is_full {
            Box::pin(stream::repeat_with(message))
        } else {
            Box::pin(turns().map(move |()| message()))
        };
        ready(Ok(tonic::Response::new(messages)))
    }
}
