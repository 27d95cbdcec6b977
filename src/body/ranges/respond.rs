//! Answers to `GET` and `HEAD` for a representation: 200, 206, 304, 412 and 416.

use std::ops::Range;
use std::time::SystemTime;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::conditional::{self, ConditionVerdict, Validators};
use super::multipart::{Part, boundary, content_range, layout};
use super::range::{self, Selected};

/// Bytes with validators and header fields. A response has all bytes, a range, or several ranges.
pub(crate) trait Representation {
    type Body;

    fn len(&self) -> u64;
    fn version(&self) -> Validators<'_>;
    /// Returns the header fields of a response with the whole representation, `Content-Type` among them.
    fn head(&self) -> &HeaderMap;
    /// Returns the header fields of responses that do not carry the representation.
    fn validators(&self) -> &HeaderMap;
    fn whole(&self) -> Self::Body;
    fn range(&self, range: Range<u64>) -> Self::Body;
    fn parts(&self, parts: Vec<Part>) -> Self::Body;
    fn nothing() -> Self::Body;
}

/// Answers a `GET`, or a `HEAD`.
pub(crate) fn respond<R: Representation>(of: &R, method: &Method, headers: &HeaderMap) -> Response<R::Body> {
    let get = *method == Method::GET;
    if conditional::any(headers) {
        match conditional::evaluate(headers, of.version()) {
            ConditionVerdict::Proceed => {}
            ConditionVerdict::NotModified => return without(of, StatusCode::NOT_MODIFIED),
            ConditionVerdict::Failed => return without(of, StatusCode::PRECONDITION_FAILED),
        }
        // §14.2: a Range header is ignored for any other method.
        if get
            && headers.contains_key(RANGE)
            && conditional::range_counts(headers, of.version(), SystemTime::now())
            && let Some(response) = ranges(of, range::select(headers, of.len()))
        {
            return response;
        }
    }
    let mut response = Response::new(if get { of.whole() } else { R::nothing() });
    *response.headers_mut() = of.head().clone();
    response
}

fn ranges<R: Representation>(of: &R, selected: Selected) -> Option<Response<R::Body>> {
    let len = of.len();
    let mut head = of.head().clone();
    let body = match selected {
        Selected::Whole => return None,
        Selected::One(range) => {
            head.insert(CONTENT_RANGE, value(content_range(&range, len)));
            head.insert(CONTENT_LENGTH, (range.end - range.start).into());
            of.range(range)
        }
        Selected::Many(ranges) => {
            let boundary = boundary();
            let parts = layout(&ranges, len, &head[CONTENT_TYPE], &boundary);
            head.insert(CONTENT_TYPE, value(format!("multipart/byteranges; boundary={boundary}")));
            head.insert(CONTENT_LENGTH, parts.iter().map(Part::len).sum::<u64>().into());
            of.parts(parts)
        }
        Selected::Unsatisfiable => {
            let mut response = without(of, StatusCode::RANGE_NOT_SATISFIABLE);
            response.headers_mut().insert(CONTENT_RANGE, value(format!("bytes */{len}")));
            return Some(response);
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    *response.headers_mut() = head;
    Some(response)
}

fn without<R: Representation>(of: &R, status: StatusCode) -> Response<R::Body> {
    let mut response = Response::new(R::nothing());
    *response.status_mut() = status;
    *response.headers_mut() = of.validators().clone();
    // An error must not be stored for as long as the representation.
    if status != StatusCode::NOT_MODIFIED {
        response.headers_mut().remove(CACHE_CONTROL);
    }
    response
}

/// Answers any other method.
pub(crate) fn method_not_allowed<B>(nothing: B) -> Response<B> {
    let mut response = Response::new(nothing);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("internal: plain text is a header value")
}
