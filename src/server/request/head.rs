//! The fields that the server reads in the head of a request.

use http::header::{HeaderMap, HeaderValue};
use http::{Method, Request, Version};

use super::host::HostField;
use crate::server::response::{Exchange, tokens};

/// The fields that the server needs, collected in one pass: a look-up by name costs as much as passing five fields.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    pub(super) host: HostField<'a>,
    pub(super) upgrades: bool,
    /// Whether the request is one of gRPC.
    pub(super) is_grpc: bool,
    is_chunked: bool,
    closes: bool,
    takes_trailers: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn of(fields: &'a HeaderMap) -> Self {
        let mut all = Self {
            host: HostField::Missing,
            upgrades: false,
            is_grpc: false,
            is_chunked: false,
            closes: false,
            takes_trailers: false,
        };
        let mut has_kind = false;
        for (name, value) in fields {
            match name.as_str() {
                "host" => all.host = all.host.and(value),
                "upgrade" => all.upgrades = true,
                // Services take the first one.
                "content-type" if !has_kind => (has_kind, all.is_grpc) = (true, is_grpc(value)),
                "transfer-encoding" => all.is_chunked = true,
                "connection" => all.closes |= lists(value, "close"),
                "te" => all.takes_trailers |= lists(value, "trailers"),
                _ => {}
            }
        }
        all
    }

    /// Returns what determines the framing of the response to `request`, whose fields these are.
    pub(super) fn exchange<B>(&self, request: &Request<B>) -> Exchange {
        let is_1_0 = request.version() == Version::HTTP_10;
        Exchange {
            is_1_0,
            keep_alive: !is_1_0 && !self.closes,
            trailers: self.takes_trailers,
            is_head: *request.method() == Method::HEAD,
            is_connect: *request.method() == Method::CONNECT,
            stays: self.is_chunked,
        }
    }
}

fn lists(value: &HeaderValue, token: &str) -> bool {
    tokens(value).any(|listed| listed.eq_ignore_ascii_case(token))
}

/// Returns whether this `Content-Type` is gRPC's.
pub(in crate::server) fn is_grpc(kind: &HeaderValue) -> bool {
    let rest = kind.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.first().is_none_or(|next| b"+;".contains(next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_content_type_decides_as_for_services() {
        let grpc = |kinds: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for kind in kinds {
                fields.append("content-type", HeaderValue::from_static(kind));
            }
            Fields::of(&fields).is_grpc
        };
        assert!(grpc(&["application/grpc"]));
        assert!(grpc(&["application/grpc+proto", "application/json"]));
        assert!(!grpc(&["application/json", "application/grpc"]));
        assert!(!grpc(&[]));
    }
}
