//! The routes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use millstream::metrics::prometheus_text;
use tokio::sync::OwnedSemaphorePermit;

use crate::chat;
use crate::error::ApiError;
use crate::keys::{Key, Keys};
use crate::upstream::Upstreams;

pub(crate) const COMPLETIONS: &str = "/v1/chat/completions";
pub(crate) const MODELS: &str = "/v1/models";

/// Length of the longest request, which may have pictures.
pub(crate) const LONGEST: usize = 16 << 20;

/// The page runs its own script, and talks to its own server only.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) struct Gateway {
    pub(crate) keys: Keys,
    pub(crate) upstreams: Arc<Upstreams>,
}

/// Returns the service.
pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/", get(page))
        .route(COMPLETIONS, post(complete))
        .route(MODELS, get(models))
        .route("/v1/generations/{id}", get(read).delete(stop))
        .route("/metrics", get(metrics))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(gateway)
}

type App = State<Arc<Gateway>>;

/// The key of a request.
struct Caller(Arc<Key>);

impl FromRequestParts<Arc<Gateway>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        gateway.keys.of(parts).map(Self)
    }
}

/// The key of a request to an upstream, and its permit. It comes before the body, so that no key has more bodies in memory
/// than it may have requests.
struct Entered(Arc<Key>, OwnedSemaphorePermit);

impl FromRequestParts<Arc<Gateway>> for Entered {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, ApiError> {
        let key = gateway.keys.of(parts)?;
        let permit = key.enter()?;
        Ok(Self(key, permit))
    }
}

async fn complete(
    State(gateway): App,
    Entered(key, permit): Entered,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Response> {
    let (request, body) = chat::parse(&headers, body)?;
    let upstreams = &gateway.upstreams;
    // A client that leaves now drops this future, and the request to the upstream with it.
    let answer = upstreams.send(Method::POST, COMPLETIONS, &body).await?;
    if !request.stream {
        return whole(upstreams, answer).await;
    }
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Err(
            ApiError::upstream(format!("the upstream answers with {kind:?} and not with events")).into_response()
        );
    }
    let (upstreams, answer) = (Arc::clone(upstreams), answer.into_body());
    Ok(key.generations.start(&key, request.model, upstreams, answer, permit)?)
}

async fn models(State(gateway): App, Caller(_key): Caller) -> Result<Response, Response> {
    whole(&gateway.upstreams, gateway.upstreams.send(Method::GET, MODELS, &Bytes::new()).await?).await
}

/// Passes an answer on as a whole, so that one that breaks off is an error.
async fn whole(upstreams: &Upstreams, answer: Response) -> Result<Response, Response> {
    let body = upstreams.whole(answer.into_body()).await?;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

async fn read(Caller(key): Caller, Path(id): Path<String>, request: Request<Body>) -> Result<Response, ApiError> {
    key.generations.attach(&request, &id, &key).map(|response| response.map(Body::new))
}

async fn stop(Caller(key): Caller, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    key.generations.stop(&id, &key).map(|()| StatusCode::NO_CONTENT)
}

async fn metrics(State(gateway): App, Caller(_key): Caller) -> Response {
    let mut text = prometheus_text();
    let unreachable = gateway.upstreams.unreachable.load(Ordering::Relaxed);
    let _ = writeln!(text, "# TYPE llm_gateway_upstream_unreachable_total counter");
    let _ = writeln!(text, "llm_gateway_upstream_unreachable_total {unreachable}");
    let _ = writeln!(text, "# TYPE llm_gateway_generations gauge");
    let generations: usize = gateway.keys.keys.iter().map(|key| key.generations.running()).sum();
    let _ = writeln!(text, "llm_gateway_generations {generations}");
    let _ = writeln!(text, "# TYPE llm_gateway_requests gauge");
    for key in &gateway.keys.keys {
        // Rust and Prometheus escape strings without control characters in the same way.
        let _ = writeln!(text, "llm_gateway_requests{{key={:?}}} {}", key.name, key.running());
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn page() -> Response {
    let fields =
        [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, POLICY), (CACHE_CONTROL, "no-cache")];
    (fields, include_str!("page.html")).into_response()
}

async fn nothing() -> ApiError {
    ApiError::invalid(StatusCode::NOT_FOUND, "unknown_url", "there is no such URL")
}

async fn not_so() -> ApiError {
    ApiError::invalid(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "the URL does not have this method")
}
