//! Construction of responses.

use std::io;
use std::time::SystemTime;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, LOCATION, RANGE, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};

use super::absent::{errno, is_absent};
use super::body::FilesBody;
use super::conditional::{self, Verdict};
use super::document::Document;
use super::entry::Entry;
use super::multipart::{boundary, content_range, layout};
use super::path;
use super::range::{self, Selected};
use crate::body::FileBody;
use crate::sys::errno::Errno;

pub(super) fn from_entry(entry: &Entry, method: &Method, headers: &HeaderMap) -> Response<FilesBody> {
    let Some(document) = entry.negotiate(headers) else { return not_acceptable() };
    let get = *method == Method::GET;
    if conditional::any(headers) {
        match conditional::evaluate(headers, document.version()) {
            Verdict::Proceed => {}
            Verdict::NotModified => return without(document, StatusCode::NOT_MODIFIED),
            Verdict::Failed => return without(document, StatusCode::PRECONDITION_FAILED),
        }
        // §14.2: a Range header is ignored for any other method.
        if get
            && headers.contains_key(RANGE)
            && conditional::range_counts(headers, document.version(), SystemTime::now())
            && let Some(response) = ranges(document, range::select(headers, document.len()))
        {
            return response;
        }
    }
    let mut response = Response::new(if get { document.whole() } else { FileBody::empty() }.into());
    *response.headers_mut() = document.head.clone();
    response
}

/// Returns the page for status 404. The preconditions and ranges of the request are about another resource.
pub(super) fn not_found_page(entry: &Entry, method: &Method, headers: &HeaderMap) -> Response<FilesBody> {
    let Some(document) = entry.negotiate(headers) else { return plain(StatusCode::NOT_FOUND) };
    let body = if *method == Method::GET { document.whole() } else { FileBody::empty() };
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::NOT_FOUND;
    *response.headers_mut() = document.head.clone();
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

fn ranges(document: &Document, selected: Selected) -> Option<Response<FilesBody>> {
    let len = document.len();
    let mut head = document.head.clone();
    let body = match selected {
        Selected::Whole => return None,
        Selected::One(range) => {
            head.insert(CONTENT_RANGE, value(content_range(&range, len)));
            head.insert(CONTENT_LENGTH, (range.end - range.start).into());
            document.range(range)
        }
        Selected::Many(ranges) => {
            let boundary = boundary();
            let body = document.parts(layout(&ranges, len, &head[CONTENT_TYPE], &boundary));
            head.insert(CONTENT_TYPE, value(format!("multipart/byteranges; boundary={boundary}")));
            head.insert(CONTENT_LENGTH, http_body::Body::size_hint(&body).lower().into());
            body
        }
        Selected::Unsatisfiable => {
            let mut response = without(document, StatusCode::RANGE_NOT_SATISFIABLE);
            response.headers_mut().insert(CONTENT_RANGE, value(format!("bytes */{len}")));
            return Some(response);
        }
    };
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    *response.headers_mut() = head;
    Some(response)
}

fn without(document: &Document, status: StatusCode) -> Response<FilesBody> {
    let mut response = plain(status);
    *response.headers_mut() = document.validators.clone();
    // An error must not be stored for as long as the file.
    if status != StatusCode::NOT_MODIFIED {
        response.headers_mut().remove(CACHE_CONTROL);
    }
    response
}

pub(super) fn plain(status: StatusCode) -> Response<FilesBody> {
    let mut response = Response::new(FileBody::empty().into());
    *response.status_mut() = status;
    response
}

pub(super) fn method_not_allowed() -> Response<FilesBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
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

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("internal: plain text is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_no_more_than_they_must() {
        for (errno, expected) in [
            (Errno::NOENT, 404),
            (Errno::NOTDIR, 404),
            (Errno::LOOP, 404),
            (Errno::XDEV, 404),
            (Errno::ACCESS, 404),
            (Errno::PERM, 404),
            (Errno::NAMETOOLONG, 404),
            (Errno::NXIO, 404),
            (Errno::ILSEQ, 404),
            (Errno::MFILE, 503),
            (Errno::NFILE, 503),
            (Errno::AGAIN, 503),
            (Errno::IO, 500),
            (Errno::STALE, 500),
        ] {
            assert_eq!(from_error(&errno.into()).status(), expected, "{errno:?}");
        }
        assert_eq!(from_error(&io::ErrorKind::PermissionDenied.into()).status(), 404);
        assert_eq!(from_error(&io::Error::other("no runtime")).status(), 500);
    }
}
