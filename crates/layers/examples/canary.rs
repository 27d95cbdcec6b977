//! A server that stamps its responses and sends a share of them on each path (a canary), with a second listener for the
//! operator:
//!
//! ```text
//! cargo run --release --example canary                    # on 127.0.0.1:8080, for the operator on 8081
//! curl -i http://127.0.0.1:8080/
//! curl http://127.0.0.1:8081/canary                       # the current state
//! curl -X PUT http://127.0.0.1:8081/canary/share/no-cork/25
//! curl -X PUT http://127.0.0.1:8081/canary/unit/connections        # or requests
//! curl -X PUT http://127.0.0.1:8081/canary/report/on      # responses name the path they took
//! curl -X PUT http://127.0.0.1:8081/canary/breaker/no-cork/open        # or closed, unpin, clear
//! ```
//!
//! `-- --help` lists the options for addresses and trusted networks. With a token in `CANARY_TOKEN`, trusted clients can
//! request a path: `curl -H "x-millstream-canary: no-cork;$CANARY_TOKEN"`. Ctrl-C ends the server.
//!
//! The operator's listener has no passwords, so it is for this machine only. It accepts only IP addresses and
//! `localhost` as hosts, so a web page cannot read it through a host name of its own. Changes need `PUT`, which pages
//! of other sites cannot send.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::extract::{Path, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use bytes::Bytes;
use clap::Parser;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use millstream::net::{SendStrategy, TcpListener};
use millstream::server::Trusted;
use millstream::server::serve;
use millstream_layers::{
    AllowedHostsLayer, BreakerPin, CanaryHandle, CanaryLayer, PathState, RequestId, ShareUnit, StampLayer,
};
use serde_json::{Value, json};
use tower::{Layer, service_fn};

#[path = "../../../examples/common/cli.rs"]
mod cli;

/// A server with canaries, and a second listener for the operator.
///
/// CANARY_TOKEN in the environment is a token of 16 to 128 characters, with which trusted clients request a path.
#[derive(Parser)]
struct Options {
    /// Public address; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The operator's address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    admin: SocketAddr,
    /// Clients whose request ids, traces and canaries are accepted, such as 10.0.0.0/8,192.0.2.7; default none.
    #[arg(long, value_name = "NETWORKS", default_value = "", hide_default_value = true)]
    trust: Trusted,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await)
}

async fn run(Options { listen, admin, trust: trusted }: Options) -> Result<(), String> {
    let mut canary = CanaryLayer::builder().trusted(trusted.clone());
    if let Ok(token) = std::env::var("CANARY_TOKEN") {
        canary = canary.token(&token);
    }
    let canary = canary.build().map_err(|e| format!("CANARY_TOKEN: {e}"))?;
    let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
    let stamp =
        StampLayer::new().trusted(trusted).environment(HeaderValue::from_static("demo")).service_version(version);
    let handle = canary.handle();
    let service = stamp.layer(canary.layer(service_fn(hello)));

    let public = bind(listen).await?;
    let operator = bind(admin).await?;
    let address = |listener: &TcpListener| listener.local_addr().map_err(|e| e.to_string());
    let interrupted = cli::interrupted().map_err(|e| e.to_string())?;
    println!("http://{}/ is public\nhttp://{}/canary is for the operator", address(&public)?, address(&operator)?);
    tokio::select! {
        served = serve(public, service) => served,
        served = serve(operator, admin_routes(handle)) => served,
        () = interrupted => Ok(()),
    }
    .map_err(|e| e.to_string())
}

async fn bind(addr: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(addr).await.map_err(|e| format!("{e}; choose another address with --listen or --admin"))
}

async fn hello<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    let id = request.extensions().get::<RequestId>().map_or("", RequestId::as_str);
    Ok(Response::new(Full::new(format!("Hello, request {id}!\n").into())))
}

fn admin_routes(handle: CanaryHandle) -> Router {
    Router::new()
        .route("/canary", get(show))
        .route("/canary/share/{path}/{percent}", put(set_share))
        .route("/canary/unit/{unit}", put(set_unit))
        .route("/canary/report/{on}", put(set_report))
        .route("/canary/breaker/{path}/{what}", put(set_breaker))
        .with_state(handle)
        .layer(AllowedHostsLayer::local())
}

type Answer = Result<Json<Value>, (StatusCode, String)>;

fn refused(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{error}\n"))
}

async fn show(State(handle): State<CanaryHandle>) -> Json<Value> {
    let state = handle.state();
    let path = |path: &PathState| {
        json!({
            "path": path.path.to_string(),
            "share": path.share,
            "requests": path.requests,
            "errors": path.errors,
            "resets": path.resets,
            "p99_ms": path.p99.map(|p99| p99.as_secs_f64() * 1e3),
            "breaker": format!("{:?}", path.breaker),
            "opens_for_s": path.opens_for.as_secs(),
            "trips": path.trips,
            "peers_out": path.peers_out,
        })
    };
    Json(json!({
        "unit": format!("{:?}", state.unit),
        "trusted": state.trusted.to_string(),
        "report": state.report,
        "has_token": state.has_token,
        "heard": state.heard,
        "refused": state.refused,
        "paths": state.paths.iter().map(path).collect::<Vec<_>>(),
    }))
}

async fn set_share(State(handle): State<CanaryHandle>, Path((path, percent)): Path<(String, f64)>) -> Answer {
    handle.set_share(path.parse().map_err(refused)?, percent).map_err(refused)?;
    Ok(show(State(handle)).await)
}

async fn set_unit(State(handle): State<CanaryHandle>, Path(unit): Path<String>) -> Answer {
    match unit.as_str() {
        "requests" => handle.set_unit(ShareUnit::Requests),
        "connections" => handle.set_unit(ShareUnit::Connections),
        _ => return Err(refused("requests or connections")),
    }
    Ok(show(State(handle)).await)
}

async fn set_report(State(handle): State<CanaryHandle>, Path(on): Path<String>) -> Answer {
    match on.as_str() {
        "on" => handle.set_report(true),
        "off" => handle.set_report(false),
        _ => return Err(refused("on or off")),
    }
    Ok(show(State(handle)).await)
}

async fn set_breaker(State(handle): State<CanaryHandle>, Path((path, what)): Path<(String, String)>) -> Answer {
    let path: SendStrategy = path.parse().map_err(refused)?;
    match what.as_str() {
        "closed" => handle.pin(path, BreakerPin::Closed),
        "open" => handle.pin(path, BreakerPin::Open),
        "unpin" => handle.unpin(path),
        "clear" => handle.clear(path),
        _ => return Err(refused("closed, open, unpin or clear")),
    }
    Ok(show(State(handle)).await)
}
