//! Construction of responses.

use std::io;

use http::header::{ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, ETAG, LAST_MODIFIED, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};

use super::absent::{errno, is_absent};
use super::body::FilesBody;
use super::entry::Entry;
use super::path;
use crate::body::ranges::Representation;
use crate::body::{FileBody, ranges};
use crate::sys::errno::Errno;

pub(super) fn from_entry(entry: &Entry, method: &Method, headers: &HeaderMap) -> Response<FilesBody> {
    match entry.negotiate(headers) {
        Some(document) => ranges::respond(document, method, headers),
        None => not_acceptable(),
    }
}

/// Returns the page for status 404. The preconditions and ranges of the request are about another resource.
pub(super) fn not_found_page(entry: &Entry, method: &Method, headers: &HeaderMap) -> Response<FilesBody> {
    let Some(document) = entry.negotiate(headers) else { return plain(StatusCode::NOT_FOUND) };
    let mut response = Response::new(if *method == Method::GET { document.whole() } else { FileBody::empty().into() });
    *response.status_mut() = StatusCode::NOT_FOUND;
    *response.headers_mut() = document.head().clone();
    for name in [ETAG, LAST_MODIFIED, ACCEPT_RANGES, CACHE_CONTROL] {
        response.headers_mut().remove(name);
    }
    response
}

fn not_acceptable() -> Response<FilesBody> {
    let mut response = plain(StatusCode::NOT_ACCEPTABLE);
    response.headers_mut().insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    response
}

pub(super) fn plain(status: StatusCode) -> Response<FilesBody> {
    let mut response = Response::new(FileBody::empty().into());
    *response.status_mut() = status;
    response
}

pub(super) fn method_not_allowed() -> Response<FilesBody> {
    ranges::method_not_allowed(FileBody::empty().into())
}

/// Redirects to the same directory with a slash, so that the relative links of its index work.
pub(super) fn to_directory(uri: &Uri) -> Response<FilesBody> {
    let Some(location) = path::slashed(uri) else { return plain(StatusCode::NOT_FOUND) };
    let mut response = plain(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Returns a listing without its body, for `HEAD`.
pub(super) fn without_body(listing: Response<FilesBody>) -> Response<FilesBody> {
    listing.map(|_| FileBody::empty().into())
}

pub(super) fn from_error(error: &io::Error) -> Response<FilesBody> {
    plain(match errno(error) {
        _ if is_absent(error) => StatusCode::NOT_FOUND,
        Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}

#[cfg(test)]
mod tests;
