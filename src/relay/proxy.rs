//! The proxy as a tower service.

use std::convert::Infallible;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::OnUpgrade;
use tower_service::Service;

use super::body::ResponseBody;
use super::builder::{Options, ProxyBuilder};
use super::failure::Failure;
use super::fields;
use super::http1::Http1;
use super::http2::Http2;
use super::pool::Pool;
use super::request_body::{BoxError, OutBody, Progress};
use super::tunnel::tunnel;
use super::upstream::Upstream;
use crate::body::direct::DirectBody;
use crate::server::identity;

/// A reverse proxy in front of one server, as a tower service for [`serve`](crate::server::serve()).
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use millstream::net::TcpListener;
/// use millstream::relay::Proxy;
/// use millstream::server::{Limits, serve};
///
/// let proxy = Proxy::new("http://127.0.0.1:8080".parse()?);
/// // The limit on the size of uploads is left to the upstream.
/// let limits = Limits::default().streaming(|_| true);
/// serve(TcpListener::bind("0.0.0.0:80").await?, proxy).limits(limits).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Bodies
///
/// A chunk that arrives is sent on in the same turn, both ways, with backpressure. After the head of the response an upload to
/// an upstream of HTTP/1.1 continues only as the client reads. On HTTP/1.1, without TLS, the rest of a
/// body with a `Content-Length` is moved from socket to socket by
/// [splice(2)](https://man7.org/linux/man-pages/man2/splice.2.html) once hyper holds none of it and 16 KiB are left.
///
/// # Header fields
///
/// Connection fields are removed in both directions ([RFC 9110 §7.6.1](https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1)).
/// Requests get `Via`, `X-Forwarded-For` with the address of the client appended, `X-Forwarded-Proto` with the
/// [scheme](ProxyBuilder::scheme) of the clients, and keep their `Host`. Responses get `Via` and the fields of [`response_header`](ProxyBuilder::response_header). The fields are of use
/// to the upstream only if it trusts this proxy alone.
///
/// # Failures
///
/// An upstream that cannot be reached, or that fails before the head of its response, causes a 502; one that does not
/// answer in [time](ProxyBuilder::timeout) a 504. The texts name no address; the events of `tracing` have the causes. One that fails in the
/// body of its response fails that body: an HTTP/1 client's connection ends before the length is reached or without the
/// last chunk, and an HTTP/2 stream is reset. When the client leaves, the connection to the upstream is closed at once, or
/// the stream reset.
///
/// A request is sent again, over a new connection, if hyper has not begun to send it, or if a kept connection fails before
/// the head of the response is complete and the request is idempotent and has no body
/// ([RFC 9110 §9.2.2](https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2)).
///
/// # Upgrades
///
/// Protocol changes of HTTP/1.1, such as WebSockets, are passed on to an upstream of HTTP/1.1: both connections become a
/// tunnel. Requests to change to `h2c` are answered without the change, because later requests would pass by this proxy.
/// `CONNECT` gets a 501. Interim responses other than `100 Continue` are not passed on.
#[derive(Clone)]
pub struct Proxy(Arc<Shared>);

struct Shared {
    upstream: Upstream,
    options: Options,
    pool: Arc<Pool>,
    http2: Http2,
}

impl ProxyBuilder {
    /// Creates the proxy. It connects when a request needs that.
    pub fn build(self) -> Proxy {
        let Self { upstream, options } = self;
        let pool = Arc::new(Pool::new(options.idle, options.idle_timeout));
        Proxy(Arc::new(Shared { upstream, options, pool, http2: Http2::default() }))
    }
}

impl Proxy {
    /// Creates a proxy with the defaults.
    pub fn new(upstream: Upstream) -> Self {
        Self::builder(upstream).build()
    }

    /// Returns a builder.
    pub fn builder(upstream: Upstream) -> ProxyBuilder {
        ProxyBuilder::new(upstream)
    }

    /// Returns the number of idle HTTP/1 connections to the upstream.
    pub fn idle_connections(&self) -> usize {
        self.0.pool.len()
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("upstream", &self.0.upstream)
            .field("options", &self.0.options)
            .field("idle_connections", &self.idle_connections())
            .finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Proxy
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<DirectBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let version = request.version();
        let shared = Arc::clone(&self.0);
        let prepared = shared.prepare(request);
        Box::pin(async move {
            let answered = match prepared {
                Ok(prepared) => shared.answer(prepared).await,
                Err(failure) => Err(failure),
            };
            let mut response = answered.unwrap_or_else(Failure::into_response);
            // The version is that of the client's connection.
            *response.version_mut() = version;
            Ok(response.map(DirectBody::new))
        })
    }
}

/// What a client is told of a change to no protocol, or to one that may not be asked for.
const UNASKED: &str = "the server behind this proxy changed the protocol without a request";

/// A request as the upstream gets it.
struct Prepared {
    request: Request<OutBody>,
    upload: Option<Arc<Progress>>,
    way: Way,
}

enum Way {
    Http1,
    Http2,
    /// With a change of the protocol, and the client's side of it.
    Upgrade(OnUpgrade),
}

impl Shared {
    fn prepare<B>(&self, mut request: Request<B>) -> Result<Prepared, Failure>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let is_http2 = self.upstream.is_http2();
        let path = match request.uri().path_and_query() {
            Some(path) if *request.method() != Method::CONNECT => path.clone(),
            _ => {
                let text = "this proxy forwards requests with a path only";
                return Err(Failure::Refused(StatusCode::NOT_IMPLEMENTED, text));
            }
        };
        let may_change = !is_http2 && request.version() == Version::HTTP_11;
        let protocol = fields::upgrade(request.headers()).filter(|_| may_change);
        let peer = identity::peer(request.extensions());
        fields::forward(&mut request, peer, is_http2, &self.options.scheme);
        let way = match protocol {
            _ if is_http2 => Way::Http2,
            Some(protocol) => {
                fields::set_upgrade(request.headers_mut(), protocol);
                Way::Upgrade(hyper::upgrade::on(&mut request))
            }
            None => Way::Http1,
        };
        *request.uri_mut() = self.target(path, request.headers_mut());
        *request.version_mut() = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        request.extensions_mut().clear();
        let (parts, body) = request.into_parts();
        let (body, upload) = OutBody::new(body);
        let mut request = Request::from_parts(parts, body);
        if !is_http2 && upload.is_some() && request.body().size_hint().exact().is_none() {
            // Otherwise hyper sends no body with a GET.
            request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Ok(Prepared { request, upload, way })
    }

    async fn answer(&self, prepared: Prepared) -> Result<Response<ResponseBody>, Failure> {
        let Prepared { request, upload, way } = prepared;
        // The rare ways have futures of their own, so that the common one is small.
        let mut response = match way {
            Way::Http1 => self.by_http1(request, upload).await?,
            Way::Http2 => Box::pin(self.by_http2(request, upload)).await?,
            Way::Upgrade(client) => return Box::pin(self.upgrade(request, upload, client)).await,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Refused(StatusCode::BAD_GATEWAY, UNASKED));
        }
        self.finish(&mut response);
        Ok(response)
    }

    /// Returns the target of a request to the upstream, which names the host once: here by HTTP/2, else in its field.
    fn target(&self, path: PathAndQuery, fields: &mut HeaderMap) -> Uri {
        if !self.upstream.is_http2() {
            // Requests by HTTP/1.0 may have none.
            fields.entry(HOST).or_insert_with(|| self.upstream.host());
            return Uri::from(path);
        }
        let host = fields.remove(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
        let authority = host.unwrap_or_else(|| self.upstream.authority().clone());
        let uri = Uri::builder().scheme(Scheme::HTTP).authority(authority).path_and_query(path);
        uri.build().expect("internal: parts of valid URIs")
    }

    /// Changes the fields of a response for the client.
    fn finish(&self, response: &mut Response<ResponseBody>) {
        let came_by = response.version();
        let fields = response.headers_mut();
        if fields.contains_key(TRANSFER_ENCODING) {
            // RFC 9112 §6.3: the coding overrides the length.
            fields.remove(CONTENT_LENGTH);
        }
        fields::remove_hop_by_hop(fields);
        fields::add_via(fields, came_by);
        for name in self.options.stamps.keys() {
            fields.remove(name);
        }
        fields.extend(self.options.stamps.clone());
    }

    async fn connect(&self) -> Result<Http1, Failure> {
        let stream = self.upstream.connect(self.options.connect_timeout).await.map_err(Failure::Connect)?;
        Ok(Http1::new(stream).expect("internal: hyper takes every stream"))
    }

    /// Waits for the head of a response, as long as the upload makes progress.
    async fn in_time<T>(&self, upload: Option<&Progress>, answered: impl Future<Output = T>) -> Result<T, Failure> {
        let mut answered = pin!(answered);
        let mut seen = 0;
        loop {
            match tokio::time::timeout(self.options.timeout, answered.as_mut()).await {
                Ok(answer) => return Ok(answer),
                Err(_) => match upload.map_or(0, Progress::frames) {
                    frames if frames != seen => seen = frames,
                    _ => return Err(Failure::Timeout),
                },
            }
        }
    }

    async fn by_http1(
        &self,
        request: Request<OutBody>,
        upload: Option<Arc<Progress>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let Some(kept) = self.pool.take() else {
            let connection = Box::pin(self.connect()).await?;
            return self.exchange(connection, request, upload).await;
        };
        // Sent again if the upstream has just closed the connection.
        let may_repeat = upload.is_none() && request.method().is_idempotent();
        let again = may_repeat.then(|| again(&request));
        let request = match (self.exchange(kept, request, upload.clone()).await, again) {
            (Err(Failure::Unsent(request)), _) => *request,
            (Err(Failure::Upstream(_)), Some(request)) => request,
            (done, _) => return done,
        };
        let connection = Box::pin(self.connect()).await?;
        Box::pin(self.exchange(connection, request, upload)).await
    }

    /// Sends a request over a connection, and receives the head of the response.
    async fn exchange(
        &self,
        mut connection: Http1,
        request: Request<OutBody>,
        upload: Option<Arc<Progress>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let answered = self.in_time(upload.as_deref(), connection.send(request)).await?;
        let response = answered.map_err(|mut failed| match failed.take_message() {
            Some(request) => Failure::Unsent(Box::new(request)),
            None => Failure::Upstream(failed.into_error()),
        })?;
        let persists = response.version() == Version::HTTP_11 && !fields::closes(response.headers());
        let pool = persists.then(|| Arc::clone(&self.pool));
        Ok(response.map(|body| ResponseBody::http1(connection, body, self.options.silence, pool, upload.is_some())))
    }

    async fn by_http2(
        &self,
        request: Request<OutBody>,
        upload: Option<Arc<Progress>>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let sending = self.http2.send(request, &self.upstream, self.options.connect_timeout);
        let response = self.in_time(upload.as_deref(), sending).await;
        if let Err(Failure::Timeout) = response {
            // The connection may be dead.
            self.http2.forget();
        }
        let response = response??;
        Ok(response.map(|body| ResponseBody::spawned(body, self.options.silence)))
    }

    /// Asks for another protocol. If the upstream agrees, the connections become a tunnel.
    async fn upgrade(
        &self,
        request: Request<OutBody>,
        upload: Option<Arc<Progress>>,
        client: OnUpgrade,
    ) -> Result<Response<ResponseBody>, Failure> {
        let connection = self.connect().await?;
        let answered = self.in_time(upload.as_deref(), connection.upgrade(request)).await?;
        let mut response = answered.map_err(Failure::Upstream)?;
        let has_changed = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let protocol = fields::upgrade(response.headers()).filter(|_| has_changed);
        if has_changed && protocol.is_none() {
            return Err(Failure::Refused(StatusCode::BAD_GATEWAY, UNASKED));
        }
        if has_changed {
            tokio::spawn(tunnel(client, hyper::upgrade::on(&mut response)));
        }
        let mut response = response.map(|body| ResponseBody::spawned(body, self.options.silence));
        self.finish(&mut response);
        if let Some(protocol) = protocol {
            fields::set_upgrade(response.headers_mut(), protocol);
        }
        Ok(response)
    }
}

/// Returns the same request. It has no body.
fn again(request: &Request<OutBody>) -> Request<OutBody> {
    let mut again = Request::new(OutBody::empty());
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.version_mut() = request.version();
    *again.headers_mut() = request.headers().clone();
    again
}
