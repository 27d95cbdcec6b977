//! Responses with ranges of anything that has a length and can be read at an offset.
//!
//! ```text
//!  respond      the response for a request: status, header fields, which bytes   ┐
//!  conditional  If-Match, If-None-Match, If-Range and the dates                  │ shared with files
//!  range        the Range field                                                  │
//!  multipart    multipart/byteranges                                             ┘
//!  read_at      what is read
//!  read_body    reads ahead, in order
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue, Method, Request, Response};

mod conditional;
mod multipart;
mod range;
mod read_at;
mod read_body;
mod respond;

pub(crate) use conditional::Validators;
pub(crate) use multipart::Part;
pub use read_at::ReadAt;
pub use read_body::RangesBody;
use read_body::{Plan, Source};
pub(crate) use respond::{Representation, method_not_allowed, respond};

/// Answers a request with all of `source`, or the ranges that it asks for: [`Ranges`] with its defaults.
pub fn ranges<S: ReadAt, B>(source: S, request: &Request<B>) -> Response<RangesBody> {
    Ranges::new(source).respond(request.method(), request.headers())
}

/// Responses with all or parts of a [`ReadAt`].
///
/// | status | when |
/// |---|---|
/// | 200, 206 | all of it; one range or, up to 16, several |
/// | 304, 412 | by `If-None-Match`, `If-Modified-Since`, `If-Match`, `If-Unmodified-Since` |
/// | 405 | methods other than `GET` and `HEAD` |
/// | 416 | no range lies within the length |
///
/// The rules are those of [`files::Files`](crate::files). A `Range` with `If-Range` applies only if the tag is strong
/// and equal, or the date is. Two versions of one second have the same date, so a client should resume by the tag.
/// Nothing is read before the body is polled, and nothing for `HEAD`.
///
/// ```
/// # use std::io;
/// # use bytes::Bytes;
/// use http::Request;
/// use millstream::body::{RangesBody, ReadAt, ranges};
/// # struct Text(&'static str);
/// # impl ReadAt for Text {
/// #     fn len(&self) -> u64 { self.0.len() as u64 }
/// #     async fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
/// #         Ok(Bytes::from_static(&self.0.as_bytes()[offset as usize..][..len]))
/// #     }
/// # }
///
/// let request = Request::get("/").header("range", "bytes=7-").body(()).unwrap();
/// let response = ranges(Text("first, second"), &request);
/// assert_eq!(response.status(), 206);
/// assert_eq!(response.headers()["content-range"], "bytes 7-12/13");
/// ```
pub struct Ranges<S> {
    source: Arc<S>,
    in_flight: usize,
    piece: usize,
    etag: Option<HeaderValue>,
    last_modified: Option<SystemTime>,
    head: HeaderMap,
    validators: HeaderMap,
}

impl<S: ReadAt> Ranges<S> {
    /// Creates the responses of `source`, with the length, tag, time and type that it has now.
    pub fn new(source: S) -> Self {
        let etag = source.etag().filter(is_tag);
        let last_modified = source.last_modified().and_then(whole_seconds);
        let mut validators = HeaderMap::new();
        if let Some(etag) = &etag {
            validators.insert(ETAG, etag.clone());
        }
        if let Some(modified) = last_modified {
            let date = HeaderValue::try_from(httpdate::fmt_http_date(modified));
            validators.insert(LAST_MODIFIED, date.expect("internal: a date is a header value"));
        }
        let mut head = validators.clone();
        head.insert(CONTENT_TYPE, source.content_type());
        head.insert(CONTENT_LENGTH, source.len().into());
        head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let source = Arc::new(source);
        Self { source, in_flight: 4, piece: 256 << 10, etag, last_modified, head, validators }
    }

    /// Sets the number of reads of one body that are in progress at the same time or wait for the client. 4 by default,
    /// at least 1 and at most 64. A body holds as many pieces.
    pub fn in_flight(mut self, reads: usize) -> Self {
        self.in_flight = reads.clamp(1, 64);
        self
    }

    /// Sets the length of a read in bytes. 256 KiB by default, at least 1.
    pub fn piece_len(mut self, bytes: usize) -> Self {
        self.piece = bytes.max(1);
        self
    }

    /// Answers a request with this method and these header fields.
    pub fn respond(&self, method: &Method, headers: &HeaderMap) -> Response<RangesBody> {
        match *method {
            Method::GET | Method::HEAD => respond(self, method, headers),
            _ => method_not_allowed(RangesBody::empty()),
        }
    }

    fn body(&self, parts: Vec<Part>) -> RangesBody {
        let source: Arc<dyn Source> = self.source.clone();
        RangesBody::new(Plan { source, in_flight: self.in_flight, piece: self.piece as u64 }, parts)
    }
}

impl<S: ReadAt> Representation for Ranges<S> {
    type Body = RangesBody;

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn version(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_ref(), last_modified: self.last_modified }
    }

    fn head(&self) -> &HeaderMap {
        &self.head
    }

    fn validators(&self) -> &HeaderMap {
        &self.validators
    }

    fn whole(&self) -> RangesBody {
        self.range(0..self.source.len())
    }

    fn range(&self, range: Range<u64>) -> RangesBody {
        self.body(vec![Part::Range(range)])
    }

    fn parts(&self, parts: Vec<Part>) -> RangesBody {
        self.body(parts)
    }

    fn nothing() -> RangesBody {
        RangesBody::empty()
    }
}

impl<S> fmt::Debug for Ranges<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranges")
            .field("head", &self.head)
            .field("in_flight", &self.in_flight)
            .field("piece", &self.piece)
            .finish_non_exhaustive()
    }
}

/// Returns whether the value is an entity tag. Another one could not be compared, and would mislead caches.
fn is_tag(value: &HeaderValue) -> bool {
    let tag = value.as_bytes();
    let quoted = tag.strip_prefix(b"W/").unwrap_or(tag);
    quoted.len() >= 2
        && quoted.starts_with(b"\"")
        && quoted.ends_with(b"\"")
        && !quoted[1..quoted.len() - 1].iter().any(|&byte| byte == b'"' || byte <= b' ' || byte == 0x7f)
}

/// Returns the time as `Last-Modified` requires: in whole seconds, not in the future. `None` before 1970 and after
/// 9999, which HTTP cannot represent.
pub(super) fn whole_seconds(time: SystemTime) -> Option<SystemTime> {
    const TOO_LATE: Duration = Duration::from_secs(253_402_300_800);
    let since = time.min(SystemTime::now()).duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since < TOO_LATE).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entity_tags_are_tags() {
        for (value, expected) in [
            ("\"v1\"", true),
            ("W/\"v1\"", true),
            ("\"\"", true),
            ("\"a,b!\"", true),
            ("v1", false),
            ("\"", false),
            ("W/", false),
            ("W/v1", false),
            ("w/\"v1\"", false),
            ("\"a\"b\"", false),
            ("\"a b\"", false),
            ("\"a\", \"b\"", false),
            ("", false),
        ] {
            assert_eq!(is_tag(&HeaderValue::from_str(value).unwrap()), expected, "{value}");
        }
    }
}
