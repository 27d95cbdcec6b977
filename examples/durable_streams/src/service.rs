//! The service: a stream for each path.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use millstream::server::RequestBody;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::body::{self, Body};
use crate::fields::{self, PATH_MAX, reserved};
use crate::refusal::Refusal;
use crate::store::{Expiry, Store, Stream};
use crate::subscriptions::Subscriptions;

/// Bodies of requests that are in memory at a time, in KiB, if the largest one is not longer.
const BODIES: u32 = 128 << 10;

pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, PUT, POST, DELETE, OPTIONS");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) store: Arc<Store>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) long_poll: Duration,
    /// After this time a connection with events ends.
    pub(crate) events: Duration,
    /// Tells live readers that the server ends.
    pub(crate) ending: CancellationToken,
    /// Whose pages may use the streams.
    origin: Option<HeaderValue>,
    body_max: u64,
    bodies: Semaphore,
}

impl App {
    pub(crate) fn new(
        store: Arc<Store>,
        subscriptions: Arc<Subscriptions>,
        body_max: u64,
        long_poll: Duration,
        events: Duration,
        origin: Option<HeaderValue>,
    ) -> Self {
        let bodies = Semaphore::new(permits(body_max).max(BODIES) as usize);
        Self { store, subscriptions, long_poll, events, ending: CancellationToken::new(), origin, body_max, bodies }
    }

    pub(crate) async fn answer(self: Arc<Self>, request: Request<RequestBody>) -> Result<Response<Body>, Infallible> {
        let answer = match request.uri().path() {
            path if path.len() > PATH_MAX => Err(Refusal::new(StatusCode::URI_TOO_LONG, "the path is too long")),
            path if reserved(path).is_some() && request.method() != Method::OPTIONS => self.control(request).await,
            _ => match *request.method() {
                Method::POST => self.append(request).await,
                Method::GET => self.read(&request).await,
                Method::PUT => self.create(request).await,
                Method::HEAD => self.head(request.uri().path()).await,
                Method::DELETE => self.delete(request.uri().path()).await,
                Method::OPTIONS => Ok(options()),
                _ => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "streams do not have this method")
                    .with(ALLOW, METHODS)),
            },
        };
        let mut response = answer.unwrap_or_else(Refusal::into_response);
        let headers = response.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
        if let Some(origin) = &self.origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        }
        Ok(response)
    }

    /// Returns the stream of a path, once its creation is on the disk.
    pub(crate) async fn stream(&self, path: &str) -> Result<Arc<Stream>, Refusal> {
        let stream = self.store.get(path).map_err(|status| match status {
            StatusCode::GONE => Refusal::deleted(),
            status => Refusal::new(status, "there is no such stream"),
        })?;
        self.store.journal.wait(stream.born()).await;
        Ok(stream)
    }

    /// Reads the body of a request. Drop the permit when the body is no longer in memory.
    pub(crate) async fn body(&self, body: RequestBody) -> Result<(Bytes, SemaphorePermit<'_>), Refusal> {
        let len = http_body::Body::size_hint(&body).upper().unwrap_or(self.body_max).min(self.body_max);
        let permit = self.bodies.acquire_many(permits(len)).await.expect("never closed");
        match body.collect().await {
            Ok(collected) => Ok((collected.to_bytes(), permit)),
            Err(e) if e.is_too_large() => Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, e.to_string())),
            Err(e) if e.is_too_slow() => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, e.to_string())),
            Err(e) => Err(Refusal::bad(e.to_string())),
        }
    }

    async fn head(&self, path: &str) -> Result<Response<Body>, Refusal> {
        let stream = self.stream(path).await?;
        let view = stream.view();
        let mut response = body::status(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, NO_STORE);
        content_type(headers, &stream);
        fields::position(headers, view.end, view.closed);
        match stream.meta.expiry {
            Expiry::Never => {}
            Expiry::Idle(seconds) => drop(headers.insert(fields::TTL, seconds.into())),
            Expiry::At(at) => headers.extend(fields::time_text(at).map(|time| (fields::EXPIRES_AT, time))),
        }
        Ok(response)
    }

    async fn delete(&self, path: &str) -> Result<Response<Body>, Refusal> {
        let stream = self.stream(path).await?;
        let (number, _) = self.store.delete(&stream).ok_or_else(Refusal::deleted)?;
        self.store.journal.wait(number).await;
        Ok(body::status(StatusCode::NO_CONTENT))
    }
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX)
}

/// Answers a browser that asks before a request. Without `origin` it refuses the request by itself.
fn options() -> Response<Body> {
    let mut response = body::status(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ALLOW, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    response
}

pub(crate) fn content_type(headers: &mut HeaderMap, stream: &Stream) {
    if let Ok(value) = HeaderValue::from_str(&stream.meta.content_type) {
        headers.insert(CONTENT_TYPE, value);
    }
}
