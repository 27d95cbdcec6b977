//! The opening handshake of a client, [RFC 6455 §4.2](https://www.rfc-editor.org/rfc/rfc6455#section-4.2).

use data_encoding::BASE64;
use http::header::{
    ALLOW, CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use tungstenite::handshake::derive_accept_key;

/// The version of the protocol.
const VERSION: &str = "13";

/// Bytes of a key, before they are encoded.
const KEY: usize = 16;

/// A request that does not begin a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Method,
    NoUpgrade,
    Version,
    Key,
}

impl Refusal {
    pub(crate) fn response<R: Default>(self) -> Response<R> {
        let mut response = Response::new(R::default());
        let (status, fields): (_, &[(HeaderName, &str)]) = match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, &[(ALLOW, "GET")]),
            Self::NoUpgrade => (StatusCode::UPGRADE_REQUIRED, &[(UPGRADE, "websocket"), (CONNECTION, "upgrade")]),
            Self::Version => (
                StatusCode::UPGRADE_REQUIRED,
                &[(SEC_WEBSOCKET_VERSION, VERSION), (UPGRADE, "websocket"), (CONNECTION, "upgrade")],
            ),
            Self::Key => (StatusCode::BAD_REQUEST, &[]),
        };
        *response.status_mut() = status;
        for (name, value) in fields {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Checks a request, and returns the head of the response that accepts it.
pub(crate) fn accept<B, R: Default>(request: &Request<B>, protocols: &[HeaderValue]) -> Result<Response<R>, Refusal> {
    let headers = request.headers();
    if request.method() != Method::GET {
        return Err(Refusal::Method);
    }
    if request.version() != Version::HTTP_11
        || !has_token(headers, &CONNECTION, "upgrade")
        || !has_token(headers, &UPGRADE, "websocket")
        || request.extensions().get::<hyper::upgrade::OnUpgrade>().is_none()
    {
        return Err(Refusal::NoUpgrade);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
        return Err(Refusal::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).ok_or(Refusal::Key)?;
    if BASE64.decode(key).map_or(true, |key| key.len() != KEY) {
        return Err(Refusal::Key);
    }
    let accept = HeaderValue::try_from(derive_accept_key(key)).map_err(|_| Refusal::Key)?;
    let mut response = Response::new(R::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) =
        tokens(headers, &SEC_WEBSOCKET_PROTOCOL).find_map(|asked| protocols.iter().find(|known| *known == asked))
    {
        fields.insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
    }
    Ok(response)
}

/// Returns the members of a list, which may be in several fields.
fn tokens<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = &'a str> {
    let fields = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|value| value.split(',')).map(str::trim)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|member| member.eq_ignore_ascii_case(token))
}
