//! Requests as the upstream gets them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue, TE, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Uri};
use http::{Method, Request, StatusCode, Version};
use http_body::Body;
use hyper::upgrade::OnUpgrade;

use super::builder::Options;
use super::client_header::{ClientHeader, encoded};
use super::failure::RequestFailure;
use super::fields;
use super::origin::Origin;
use super::request_body::{BoxError, OutBody, Upload};
use millstream::internal::identity;

/// A request for the upstream, independent of its HTTP version: the target is a path, and the host is in `Host`.
pub(crate) struct Outgoing {
    pub(crate) request: Request<OutBody>,
    pub(crate) upload: Option<Arc<Upload>>,
    /// The client's side of a change of the protocol, if the request asks for one.
    pub(crate) change: Option<OnUpgrade>,
    pub(crate) header: ClientHeader,
}

impl Outgoing {
    pub(crate) fn new<B>(mut request: Request<B>, origin: &Origin, options: &Options) -> Result<Self, RequestFailure>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let version = request.version();
        let path = match request.uri().path_and_query() {
            Some(path) if *request.method() != Method::CONNECT => rooted(path),
            _ => {
                let text = "this proxy forwards requests with a path only";
                return Err(RequestFailure::Refused(StatusCode::NOT_IMPLEMENTED, text));
            }
        };
        if fields::ends_here(&mut request) {
            return Err(match *request.method() {
                Method::OPTIONS => RequestFailure::Refused(StatusCode::OK, "this proxy forwards requests"),
                _ => {
                    RequestFailure::Refused(StatusCode::NOT_IMPLEMENTED, "this proxy forwards requests and shows none")
                }
            });
        }
        if fields::has_other_coding(request.headers()) {
            let text = "this proxy passes on no transfer coding but chunked";
            return Err(RequestFailure::Refused(StatusCode::NOT_IMPLEMENTED, text));
        }
        if !fields::normalize_length(request.headers_mut()) {
            return Err(RequestFailure::Refused(StatusCode::BAD_REQUEST, "the request has no valid length"));
        }
        let may_change = origin.has_http1() && version == Version::HTTP_11;
        let protocol = fields::upgrade(request.headers()).filter(|_| may_change);
        // An IPv4 client may have connected to an IPv6 socket.
        let peer = identity::peer(request.extensions()).map(|peer| peer.to_canonical());
        let is_tls = identity::connection(request.extensions()).is_some_and(|connection| connection.is_tls());
        let by_connection = HeaderValue::from_static(if is_tls { "https" } else { "http" });
        let header = options.proxy_protocol.map(|version| encoded(request.extensions(), version));
        let scheme = options.scheme.as_ref().unwrap_or(&by_connection);
        fields::forward(&mut request, peer, scheme, options.forwarded);
        let change = protocol.map(|protocol| {
            fields::set_upgrade(request.headers_mut(), protocol);
            hyper::upgrade::on(&mut request)
        });
        *request.uri_mut() = Uri::from(path);
        request.extensions_mut().clear();
        let (mut parts, body) = request.into_parts();
        let (body, upload) = OutBody::new(body);
        let expects = fields::expects_continue(&parts.headers);
        if upload.is_none() {
            // If a layer has read the body, the upstream would otherwise treat the next request as the body.
            if parts.headers.contains_key(CONTENT_LENGTH) {
                parts.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            }
            if expects {
                parts.headers.remove(EXPECT);
            }
        }
        let mut request = Request::from_parts(parts, body);
        if upload.is_some() && version >= Version::HTTP_11 && expects {
            hold(&mut request);
        }
        Ok(Self { request, upload, change, header })
    }
}

/// Returns the path. The empty one of an absolute target, which a query or a fragment may follow, is the root (RFC 9110
/// §4.2.3).
fn rooted(path: &PathAndQuery) -> PathAndQuery {
    match path.as_str() {
        // The http crate also returns this for an empty path, which is not valid in a request target.
        "/" => PathAndQuery::from_static("/"),
        text if text.starts_with('?') => format!("/{text}").parse().expect("internal: a path"),
        _ => path.clone(),
    }
}

/// Holds the body back until the upstream sends `100 Continue`.
fn hold(request: &mut Request<OutBody>) {
    let want = Mutex::new(Some(request.body_mut().hold()));
    hyper::ext::on_informational(request, move |interim| {
        if interim.status() == StatusCode::CONTINUE
            && let Some(want) = want.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            // Fails only if the body has gone.
            let _ = want.send(());
        }
    });
}

/// Turns a request into an HTTP/1.1 request, with the host in `Host`.
pub(crate) fn into_http1(request: &mut Request<OutBody>, origin: &Origin) {
    *request.version_mut() = Version::HTTP_11;
    if let Some(host) = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    *request.uri_mut() = path(request);
    let is_unknown = !request.body().is_end_stream() && request.body().size_hint().exact().is_none();
    let fields = request.headers_mut();
    fields::join_cookies(fields);
    fields.remove(TE);
    // Requests by HTTP/1.0 may have none.
    fields.entry(HOST).or_insert_with(|| origin.upstream.host());
    if is_unknown {
        // Otherwise hyper sends no body with a GET.
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Turns a request into an HTTP/2 request, with the host in its target.
pub(crate) fn into_http2(request: &mut Request<OutBody>, origin: &Origin) {
    *request.version_mut() = Version::HTTP_2;
    // hyper does not report interim responses here, so a body that waits for one is sent at once.
    request.extensions_mut().clear();
    let fields = request.headers_mut();
    fields.remove(TRANSFER_ENCODING);
    let host = fields.remove(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    let authority = host.unwrap_or_else(|| origin.upstream.authority().clone());
    let path = path(request).into_parts().path_and_query.expect("internal: a target with a path");
    let uri = Uri::builder().scheme(origin.upstream.scheme()).authority(authority).path_and_query(path);
    *request.uri_mut() = uri.build().expect("internal: parts of valid URIs");
}

fn path(request: &Request<OutBody>) -> Uri {
    Uri::from(request.uri().path_and_query().expect("internal: a target with a path").clone())
}

/// Returns the head of a request. Its extensions are those of one attempt.
pub(crate) fn head(request: &Request<OutBody>) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.version_mut() = request.version();
    *head.headers_mut() = request.headers().clone();
    head
}

#[cfg(test)]
mod tests;
