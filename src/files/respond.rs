//! Responses.

use std::io;
use std::time::SystemTime;

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use rustix::io::Errno;

use super::conditional::{self, Verdict};
use super::entry::{Document, Entry};
use super::multipart::{boundary, content_range, layout};
use super::path;
use super::range::{self, Selected};
use crate::body::FileBody;

/// Answers a `GET` or `HEAD` from a valid entry.
pub(super) fn from_entry(entry: &Entry, method: &Method, headers: &HeaderMap) -> Response<FileBody> {
    let document = entry.negotiate(headers);
    let get = *method == Method::GET;
    if conditional::any(headers) {
        match conditional::evaluate(headers, document.version()) {
            Verdict::Proceed => {}
            Verdict::NotModified => return without(document, StatusCode::NOT_MODIFIED),
            Verdict::Failed => return without(document, StatusCode::PRECONDITION_FAILED),
        }
        // §14.2: a Range header on any other method is to be ignored.
        if get
            && headers.contains_key(RANGE)
            && conditional::range_counts(headers, document.version(), SystemTime::now())
            && let Some(response) = ranges(document, range::select(headers, document.len()))
        {
            return response;
        }
    }
    let mut response = Response::new(if get { document.whole() } else { FileBody::empty() });
    *response.headers_mut() = document.head.clone();
    response
}

/// A 206 or 416, or `None` where the whole is to be sent.
fn ranges(document: &Document, selected: Selected) -> Option<Response<FileBody>> {
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
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    *response.headers_mut() = head;
    Some(response)
}

/// An answer about a document that does not carry it.
fn without(document: &Document, status: StatusCode) -> Response<FileBody> {
    let mut response = plain(status);
    *response.headers_mut() = document.validators.clone();
    response
}

/// A status and nothing else.
pub(super) fn plain(status: StatusCode) -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = status;
    response
}

/// 405, with what is allowed.
pub(super) fn method_not_allowed() -> Response<FileBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// Sends the client to the same directory with a slash, so that the relative links of its index work.
pub(super) fn to_directory(uri: &Uri) -> Response<FileBody> {
    let Some(location) = path::slashed(uri) else { return plain(StatusCode::NOT_FOUND) };
    let mut response = plain(StatusCode::TEMPORARY_REDIRECT);
    response.headers_mut().insert(LOCATION, location);
    response
}

/// What went wrong, as far as it is the client's business.
pub(super) fn from_error(error: &io::Error) -> Response<FileBody> {
    plain(match errno(error) {
        _ if is_absent(error) => StatusCode::NOT_FOUND,
        Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}

/// Whether an error says that there is nothing to serve. One that says why would tell a stranger what lies there.
pub(super) fn is_absent(error: &io::Error) -> bool {
    match errno(error) {
        Some(errno) => matches!(
            errno,
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG
                // A socket, a device that is not there: no files. A name that the file system cannot have.
                | Errno::NXIO | Errno::NODEV | Errno::INVAL | Errno::ILSEQ
        ),
        None => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied),
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// A header value of digits and plain words.
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
