//! Requests to the upstreams: round robin over the upstreams that answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::uri::{Authority, Scheme, Uri};
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use millstream::net::Connector;
use tokio::time::timeout;

use crate::error::ApiError;

/// Time for which an upstream that refused a connection is asked last.
pub(crate) const PENALTY: Duration = Duration::from_secs(5);

/// Length of the longest answer that is not streamed.
const LONGEST: usize = 16 << 20;

/// The upstreams, and the connections to them.
pub(crate) struct Upstreams {
    client: Client<Connector, Full<Bytes>>,
    upstreams: Vec<Upstream>,
    /// Where the next request begins.
    next: AtomicUsize,
    /// Time after which a silent upstream has failed.
    pub(crate) silence: Duration,
    key: Option<HeaderValue>,
    /// Number of connections that failed.
    pub(crate) unreachable: AtomicU64,
}

struct Upstream {
    authority: Authority,
    /// When it refused a connection last.
    refused: Mutex<Option<Instant>>,
}

/// Reads `http://HOST:PORT`.
pub(crate) fn authority(text: &str) -> Result<Authority, &'static str> {
    let uri: Uri = text.parse().map_err(|_| "it is not a URL")?;
    if uri.scheme() != Some(&Scheme::HTTP) || uri.path() != "/" || uri.query().is_some() {
        return Err("write http://HOST:PORT, without a path");
    }
    uri.authority().cloned().ok_or("write http://HOST:PORT")
}

impl Upstreams {
    pub(crate) fn new(upstreams: Vec<Authority>, silence: Duration, key: Option<&str>) -> Result<Self, String> {
        let key = key.map(|key| HeaderValue::try_from(format!("Bearer {key}"))).transpose();
        let upstream = |authority| Upstream { authority, refused: Mutex::default() };
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(Connector::new()),
            upstreams: upstreams.into_iter().map(upstream).collect(),
            next: AtomicUsize::new(0),
            silence,
            key: key.map_err(|_| "the key of the upstreams is no header value")?,
            unreachable: AtomicU64::new(0),
        })
    }

    /// Sends a request to an upstream, and to the next one if it cannot be connected. Returns the head of the response,
    /// with a successful status.
    ///
    /// # Errors
    ///
    /// An error of the client is the answer of the upstream; one of the upstream is an [`ApiError`] about it.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Bytes) -> Result<Response, Response> {
        let response = self.head(method, path, body).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let is_of_client = status.is_client_error()
            && !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::REQUEST_TIMEOUT);
        if !is_of_client {
            return Err(ApiError::upstream(format!("the upstream answers with {status}")).into());
        }
        let retry_after = response.headers().get(RETRY_AFTER).cloned();
        let body = self.whole(response.into_body()).await?;
        let mut answer = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        answer.headers_mut().extend(retry_after.map(|value| (RETRY_AFTER, value)));
        Err(answer)
    }

    async fn head(&self, method: Method, path: &str, body: &Bytes) -> Result<Response, ApiError> {
        let mut last = ApiError::upstream("there is no upstream");
        for upstream in self.order() {
            let request = self.request(upstream, &method, path, body)?;
            match timeout(self.silence, self.client.request(request)).await {
                Err(_) => return Err(ApiError::silent()),
                Ok(Ok(response)) => {
                    *upstream.refused.lock().expect("never poisoned") = None;
                    return Ok(response.map(Body::new));
                }
                Ok(Err(error)) => {
                    last = ApiError::upstream(format!("the upstream does not answer: {}", report(&error)));
                    if !error.is_connect() {
                        return Err(last);
                    }
                    self.unreachable.fetch_add(1, Ordering::Relaxed);
                    *upstream.refused.lock().expect("never poisoned") = Some(Instant::now());
                }
            }
        }
        Err(last)
    }

    /// Returns the upstreams, from the next one on. Upstreams that have refused a connection lately are the last.
    fn order(&self) -> Vec<&Upstream> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.upstreams.len();
        let mut order: Vec<_> = self.upstreams[first..].iter().chain(&self.upstreams[..first]).collect();
        order.sort_by_key(|upstream| {
            upstream.refused.lock().expect("never poisoned").is_some_and(|at| at.elapsed() < PENALTY)
        });
        order
    }

    fn request(
        &self,
        upstream: &Upstream,
        method: &Method,
        path: &str,
        body: &Bytes,
    ) -> Result<Request<Full<Bytes>>, ApiError> {
        let uri = format!("http://{}{path}", upstream.authority);
        let mut request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        request.body(Full::new(body.clone())).map_err(|error| ApiError::upstream(error.to_string()))
    }

    /// Returns the next bytes of a body; `None` at its end.
    pub(crate) async fn bytes(&self, body: &mut Body) -> Result<Option<Bytes>, ApiError> {
        loop {
            match timeout(self.silence, body.frame()).await.map_err(|_| ApiError::silent())? {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(ApiError::upstream(format!(
                        "the answer of the upstream broke off: {}",
                        report(&error)
                    )));
                }
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// Returns the whole body of an answer that is not streamed.
    pub(crate) async fn whole(&self, mut body: Body) -> Result<Bytes, ApiError> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.bytes(&mut body).await? {
            whole.extend_from_slice(&bytes);
            if whole.len() > LONGEST {
                return Err(ApiError::upstream("the answer of the upstream is longer than 16 MiB"));
            }
        }
        Ok(whole.into())
    }
}

/// Returns the text of an error with its causes.
fn report(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
