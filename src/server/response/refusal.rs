//! Responses of the server itself.

use std::time::SystemTime;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};
use http::{Response, StatusCode};

use crate::counters::log;
use crate::server::limits::Limits;

/// Returns the answer with `status`, with what [`Limits::on_refusal`] adds. A gRPC request gets a gRPC status instead, if
/// there is one for `status`.
pub(in crate::server) fn refusal(limits: &Limits, status: StatusCode, grpc: bool) -> Response<Bytes> {
    log::request_refused(status.as_u16());
    let mut response = Response::new(Bytes::new());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(limits.retry_after.draw_seconds()));
    }
    match grpc_status(status).filter(|_| grpc) {
        Some((code, message)) => {
            let fields = response.headers_mut();
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            fields.insert("grpc-status", HeaderValue::from_static(code));
            fields.insert("grpc-message", HeaderValue::from_static(message));
        }
        None => {
            *response.status_mut() = status;
            if let Some(hook) = &limits.on_refusal {
                (hook.0)(&mut response);
                // The server frames its answer, and a status without a body would not fit the framing.
                *response.status_mut() = status;
                for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
                    response.headers_mut().remove(name);
                }
            }
        }
    }
    response
}

/// Returns the bytes of an answer of HTTP/1 after which the connection closes, for a request that hyper does not read.
pub(in crate::server) fn unparsed(limits: &Limits, status: StatusCode) -> Vec<u8> {
    let response = refusal(limits, status, false);
    let mut bytes = format!("HTTP/1.1 {}\r\nConnection: close\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    if !response.headers().contains_key(DATE) {
        // RFC 9110 §6.6.1.
        bytes.extend(format!("Date: {}\r\n", httpdate::fmt_http_date(SystemTime::now())).into_bytes());
    }
    bytes.extend(format!("Content-Length: {}\r\n\r\n", response.body().len()).into_bytes());
    bytes.extend(response.body());
    bytes
}

fn grpc_status(status: StatusCode) -> Option<(&'static str, &'static str)> {
    match status {
        StatusCode::REQUEST_TIMEOUT => Some(("4", "the request came too slowly")),
        StatusCode::PAYLOAD_TOO_LARGE => Some(("8", "the request is too large")),
        StatusCode::SERVICE_UNAVAILABLE => Some(("14", "the server is overloaded")),
        _ => None,
    }
}
