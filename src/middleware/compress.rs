//! Compresses responses by the coding that the client prefers.

mod rules;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, IF_NONE_MATCH};
use http::response::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::{Compress, ContentCoding};

/// Size from which responses are compressed by default: a smaller one fits a packet anyway.
const MIN_SIZE: u64 = 1024;

type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// Compresses responses with [`body::Compress`](Compress), by the coding that the client prefers
/// ([RFC 9110 §12.5.3](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.3)).
///
/// Streams are flushed whenever they pause, so events (`text/event-stream`) and tokens are compressed and arrive at
/// once.
///
/// ```
/// use millstream::body::ContentCoding;
/// use millstream::middleware::CompressLayer;
///
/// // For `axum::Router::layer`, or around any other service.
/// let layer = CompressLayer::new().level(ContentCoding::Brotli, 5).min_size(4096);
/// # drop(layer);
/// ```
///
/// These responses pass unchanged:
///
/// * to `CONNECT` requests, and with the status 1xx, 204, 205 and 206;
/// * with `Content-Encoding`, such as the precompressed variants of `files::Files` and the events of a hub with
///   `HubBuilder::gzip`;
/// * with `Content-Range`, `Cache-Control: no-transform`, or a digest of the content (`Content-Digest`, `Repr-Digest`,
///   `Digest`, `Content-MD5`);
/// * with a body of known size that is smaller than [`min_size`](Self::min_size);
/// * of a media type that is compressed already, see [`is_compressible`](Self::is_compressible) and
///   [`only`](Self::only).
///
/// Other responses get `Vary: Accept-Encoding`, even if the client wants them uncompressed. A compressed response has
/// `Content-Encoding` and a weak `ETag`, because its bytes differ from those that a strong tag identifies. It has
/// neither `Content-Length` nor `Accept-Ranges`. The response to `HEAD` has the same head, if the content is large
/// enough by its `Content-Length`.
///
/// A 304 gets the same `Vary` (RFC 9110 §15.4.5). Its tag becomes weak if the client has sent the weak form of it. If
/// it has a `Content-Type`, this decides, as for a response with content. Usually it has none, and is then changed in
/// both ways, whatever the size of the content. A needless `Vary` makes a cache store one more response; a missing one
/// makes it return the wrong content.
///
/// [`body::Compress`](Compress#memory) says what a compressed response holds. The body of an uncompressed one passes
/// its frames on at the same addresses.
#[derive(Clone)]
#[must_use = "a layer does nothing unless it is put around a service"]
pub struct CompressLayer {
    codings: Arc<[ContentCoding]>,
    /// By coding; `None` for the default level.
    levels: [Option<u32>; ContentCoding::ALL.len()],
    min_size: u64,
    only: Option<Arc<Predicate>>,
}

impl CompressLayer {
    /// Creates a layer with all codings at their default levels. `zstd`, which costs the least CPU time, is preferred
    /// to `br`, and that to `gzip`, among codings that the client gives equal weight.
    pub fn new() -> Self {
        let codings = [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip];
        Self { codings: codings.into(), levels: Default::default(), min_size: MIN_SIZE, only: None }
    }

    /// Sets the codings, the preferred one first.
    pub fn codings(mut self, codings: impl IntoIterator<Item = ContentCoding>) -> Self {
        self.codings = codings.into_iter().collect();
        self
    }

    /// Sets the level of a coding, as [`Compress::with_level`].
    pub fn level(mut self, coding: ContentCoding, level: u32) -> Self {
        self.levels[coding as usize] = Some(level);
        self
    }

    /// Sets the size in bytes from which bodies are compressed, if their size is known beforehand; 1024 by default.
    pub fn min_size(mut self, bytes: u64) -> Self {
        self.min_size = bytes;
        self
    }

    /// Compresses only responses of which `predicate` is true, in place of the check of their media type.
    pub fn only(mut self, predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(predicate));
        self
    }

    /// Returns whether the media type in `Content-Type` is worth compressing: any but images (SVG is), video, audio,
    /// web fonts, archives, office documents (which are archives), and gRPC, which compresses by itself. Also true
    /// without a `Content-Type`.
    pub fn is_compressible(headers: &HeaderMap) -> bool {
        rules::is_compressible(headers)
    }

    fn answer<B: Body<Data = Bytes>>(&self, response: Response<B>, asked: Option<&Asked>) -> Response<Compress<B>> {
        let (mut parts, body) = response.into_parts();
        let coding = asked.and_then(|asked| self.adapt(&mut parts, &body, asked));
        let body = match coding.map(|coding| (coding, self.levels[coding as usize])) {
            Some((coding, Some(level))) => Compress::with_level(body, coding, level),
            Some((coding, None)) => Compress::new(body, coding),
            None => Compress::identity(body),
        };
        Response::from_parts(parts, body)
    }

    /// Changes the head for the client, and returns the coding of the body.
    fn adapt<B: Body>(&self, parts: &mut Parts, body: &B, asked: &Asked) -> Option<ContentCoding> {
        if !rules::may_change(parts) {
            return None;
        }
        let is_304 = parts.status == StatusCode::NOT_MODIFIED;
        // The body of a response to HEAD is empty, or will be.
        let stated = if asked.is_head { rules::stated_size(&parts.headers) } else { None };
        let most = stated.or_else(|| if body.is_end_stream() { Some(0) } else { body.size_hint().upper() });
        // The length of a 304 is unknown: its `Content-Length` may be that of its empty body.
        let is_small = !is_304 && most.is_some_and(|most| most < self.min_size);
        let is_worth = match &self.only {
            Some(only) if !is_304 || parts.headers.contains_key(CONTENT_TYPE) => only(parts),
            _ => rules::is_compressible(&parts.headers),
        };
        if is_small || !is_worth {
            return None;
        }
        rules::vary(&mut parts.headers);
        if is_304 {
            if asked.held.iter().any(|held| rules::holds_weak(held, &parts.headers)) {
                rules::weaken(&mut parts.headers);
            }
            return None;
        }
        let coding = asked.coding?;
        rules::encode(&mut parts.headers, coding);
        // An empty body stays empty. The size of another is no longer known to the server.
        (!asked.is_head || !body.is_end_stream()).then_some(coding)
    }
}

impl Default for CompressLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CompressLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressLayer")
            .field("codings", &self.codings)
            .field("levels", &self.levels)
            .field("min_size", &self.min_size)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for CompressLayer {
    type Service = CompressService<S>;

    fn layer(&self, service: S) -> CompressService<S> {
        CompressService { service, layer: self.clone() }
    }
}

/// Properties of a request that decide about its response.
#[derive(Clone, Debug)]
struct Asked {
    /// The preferred coding; `None` for the identity.
    coding: Option<ContentCoding>,
    is_head: bool,
    /// The lines of `If-None-Match`.
    held: Vec<HeaderValue>,
}

/// A service in a [`CompressLayer`].
#[derive(Clone, Debug)]
pub struct CompressService<S> {
    service: S,
    layer: CompressLayer,
}

impl<S, Q, B> Service<Request<Q>> for CompressService<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    B: Body<Data = Bytes>,
{
    type Response = Response<Compress<B>>;
    type Error = S::Error;
    type Future = CompressFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let fields = request.headers();
        let asked = (*request.method() != Method::CONNECT).then(|| Asked {
            coding: ContentCoding::negotiate(fields, self.layer.codings.iter().copied()),
            is_head: *request.method() == Method::HEAD,
            held: fields.get_all(IF_NONE_MATCH).iter().cloned().collect(),
        });
        CompressFuture { future: self.service.call(request), layer: self.layer.clone(), asked }
    }
}

pin_project! {
    /// Response future of [`CompressService`].
    pub struct CompressFuture<F> {
        #[pin]
        future: F,
        layer: CompressLayer,
        // `None` for `CONNECT`, whose response has no content.
        asked: Option<Asked>,
    }
}

impl<F, B, E> Future for CompressFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<Compress<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx))?;
        Poll::Ready(Ok(this.layer.answer(response, this.asked.as_ref())))
    }
}

impl<F> fmt::Debug for CompressFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressFuture").field("asked", &self.asked).finish_non_exhaustive()
    }
}
