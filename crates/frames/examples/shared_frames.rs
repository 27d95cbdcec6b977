//! Bodies exchanged with other processes in shared memory, here with programs in Python.
//!
//! `cargo run --release -p millstream-frames --example shared_frames` listens on `127.0.0.1:8084` until Ctrl-C, and on two
//! Unix sockets. Each connection of a producer becomes the body of one response, and each upload goes to one connection
//! of a consumer; requests wait for them. Try it with
//!
//! ```text
//! python3 crates/frames/examples/shared_frames.py produce producers.sock < FILE &
//! curl --output COPY http://127.0.0.1:8084/
//! python3 crates/frames/examples/shared_frames.py consume consumers.sock > COPY &
//! curl --upload-file FILE http://127.0.0.1:8084/
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use clap::Parser;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, StatusCode};
use millstream::net::{TcpListener, UnixListener};
use millstream::server::{Limits, RequestBody, serve};
use millstream_frames::{FrameReceiver, FrameSender, SharedError};

use report::report;

#[path = "../../../examples/common/cli.rs"]
mod cli;
#[path = "../../../examples/common/report.rs"]
mod report;

/// Streams what other processes make, and passes uploads to them, in shared memory.
#[derive(Parser)]
struct Options {
    /// Address and port; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8084")]
    listen: SocketAddr,
    /// Socket for processes that produce responses.
    #[arg(long, value_name = "PATH", default_value = "producers.sock")]
    producers: PathBuf,
    /// Socket for processes that consume uploads.
    #[arg(long, value_name = "PATH", default_value = "consumers.sock")]
    consumers: PathBuf,
}

struct Service {
    producers: UnixListener,
    consumers: UnixListener,
}

type Body = UnsyncBoxBody<Bytes, SharedError>;

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await)
}

/// Binds a socket that only this user can connect to.
async fn bind(path: &Path) -> Result<UnixListener, String> {
    UnixListener::builder().mode(0o600).bind(path).await.map_err(|e| report(&e))
}

async fn run(options: Options) -> Result<(), String> {
    let Options { listen, producers, consumers } = options;
    let service = Arc::new(Service { producers: bind(&producers).await?, consumers: bind(&consumers).await? });
    let listener = TcpListener::bind(listen).await.map_err(|e| report(&e))?;
    let addr = listener.local_addr().map_err(|e| report(&e))?;
    let interrupted = cli::interrupted().map_err(|e| format!("no signals: {e}"))?;
    println!("http://{addr}/ streams from {}, uploads go to {}", producers.display(), consumers.display());
    let service = tower::service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { service.answer(request).await }
    });
    // Uploads are as slow as their clients like.
    let serving = serve(listener, service).limits(Limits::default().streaming_requests(|_| true));
    tokio::select! {
        served = serving => served.map_err(|e| report(&e)),
        () = interrupted => Ok(()),
    }
}

impl Service {
    async fn answer(&self, request: Request<RequestBody>) -> Result<Response<Body>, std::convert::Infallible> {
        let answer = match *request.method() {
            Method::GET => self.produced().await,
            Method::PUT | Method::POST => self.consumed(request.into_body()).await,
            _ => Ok(text(StatusCode::METHOD_NOT_ALLOWED, "GET, PUT or POST\n".to_owned())),
        };
        Ok(answer.unwrap_or_else(|error| {
            eprintln!("{}", report(&error));
            text(StatusCode::BAD_GATEWAY, "the other process has failed\n".to_owned())
        }))
    }

    async fn produced(&self) -> Result<Response<Body>, SharedError> {
        let Ok((stream, _)) = self.producers.accept().await else { return Ok(unavailable()) };
        Ok(Response::new(FrameReceiver::handshake(stream).await?.boxed_unsync()))
    }

    async fn consumed(&self, body: RequestBody) -> Result<Response<Body>, SharedError> {
        let Ok((stream, _)) = self.consumers.accept().await else { return Ok(unavailable()) };
        let mut sender = FrameSender::handshake(stream).await?;
        let bytes = sender.send_body(body).await?;
        sender.finish().await?;
        Ok(text(StatusCode::OK, format!("{bytes} bytes\n")))
    }
}

fn unavailable() -> Response<Body> {
    text(StatusCode::SERVICE_UNAVAILABLE, "no other process can connect\n".to_owned())
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::from(text).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}
