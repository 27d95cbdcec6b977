//! The baseline: the service a careful user writes with tokio, hyper and tower-http alone, TCP_NODELAY on.
//!
//! `cargo run --release --example stock -- [--listen ADDR] [--root DIR] [--workers N]` answers the routes of the `serve`
//! example, so that both can be loaded the same way and compared.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_http::services::fs::{ServeDir, ServeFileSystemResponseBody};

use common::{Events, HELLO, Options, Tokens};

mod common;

const INDEX: &[u8] = b"plain hyper: /hello  /f/NAME  /tokens  /events?hz=N\n";

fn main() -> ExitCode {
    let result = Options::parse("stock", 8081).and_then(|options| {
        let run = || common::runtime(options.workers)?.block_on(run(&options));
        run().map_err(|e| format!("{}: {e}; choose another address with --listen", options.listen))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> io::Result<()> {
    let listener = TcpListener::bind(options.listen).await?;
    println!("http://{}/ serves {}, workers: {}", listener.local_addr()?, options.root.display(), options.workers);
    tokio::select! {
        () = accept(listener, &options.root) => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted,
    }
}

async fn accept(listener: TcpListener, root: &Path) {
    let files = ServeDir::new(root);
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Without a timer hyper has no header timeout, and nobody should run it so.
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                eprintln!("accept: {e}; trying again");
                // Out of descriptors or memory: others have to finish first. Anything else is over by then as well.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if stream.set_nodelay(true).is_err() {
            // The peer is gone already.
            continue;
        }
        let (builder, files) = (builder.clone(), files.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, files.clone()));
            // A client that leaves in the middle of a stream is an error here and none for a server.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, files: ServeDir) -> Result<Response<Reply>, Infallible> {
    let uri = request.uri();
    Ok(match uri.path() {
        _ if !matches!(*request.method(), Method::GET | Method::HEAD) => not_found(),
        "/" => reply("text/plain; charset=utf-8", Reply::whole(INDEX)),
        "/hello" => reply("application/json", Reply::whole(HELLO)),
        "/tokens" => reply("text/event-stream", Reply::Tokens { body: Tokens::new() }),
        "/events" => reply("text/event-stream", Reply::Events { body: Events::new(uri.query()) }),
        path => match path.strip_prefix("/f").filter(|rest| rest.starts_with('/')).map(str::parse::<Uri>) {
            Some(Ok(rest)) => {
                let (mut parts, body) = request.into_parts();
                parts.uri = rest;
                match files.oneshot(Request::from_parts(parts, body)).await {
                    Ok(response) => response.map(|body| Reply::File { body }),
                    Err(never) => match never {},
                }
            }
            _ => not_found(),
        },
    })
}

fn reply(content_type: &'static str, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn not_found() -> Response<Reply> {
    let mut response = reply("text/plain; charset=utf-8", Reply::whole(b"not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

pin_project_lite::pin_project! {
    /// Every body of this server; an enum, so that no route pays for a box it does not need.
    #[project = ReplyProjection]
    enum Reply {
        Whole { #[pin] body: Full<Bytes> },
        File { #[pin] body: ServeFileSystemResponseBody },
        Tokens { #[pin] body: Tokens },
        Events { #[pin] body: Events },
    }
}

impl Reply {
    fn whole(text: &'static [u8]) -> Self {
        Self::Whole { body: Full::new(Bytes::from_static(text)) }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.project() {
            ReplyProjection::Whole { body } => body.poll_frame(cx).map_err(|never| match never {}),
            ReplyProjection::File { body } => body.poll_frame(cx),
            ReplyProjection::Tokens { body } => body.poll_frame(cx).map_err(|never| match never {}),
            ReplyProjection::Events { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { body } => body.is_end_stream(),
            Self::File { body } => body.is_end_stream(),
            Self::Tokens { body } => body.is_end_stream(),
            Self::Events { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body } => body.size_hint(),
            Self::File { body } => body.size_hint(),
            Self::Tokens { body } => body.size_hint(),
            Self::Events { body } => body.size_hint(),
        }
    }
}
