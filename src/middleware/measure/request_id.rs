//! Request ids.

use std::fmt;

use http::header::{HeaderMap, HeaderName, HeaderValue};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const LEN_MAX: usize = 64;

/// Id of a request: 32 random hexadecimal digits, or the id that a trusted peer has set, up to 64 of `A-Z a-z 0-9 _ -`.
/// `StampLayer` adds it to the extensions and headers of the request, and to the response. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Creates an id of `value`, which has 1 to 64 of `A-Z a-z 0-9 _ -`.
    #[doc(hidden)]
    pub fn new(value: HeaderValue) -> Self {
        Self(value)
    }

    /// Reads the `x-request-id` of `headers`: `None` if there is none, more than one, or an invalid one. Inside
    /// `StampLayer` there always is one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(REQUEST_ID).iter();
        let value = values.next().filter(|_| values.next().is_none())?;
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
        let is_id = (1..=LEN_MAX).contains(&value.len()) && value.as_bytes().iter().all(allowed);
        is_id.then(|| Self(value.clone()))
    }

    /// Returns the id.
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("internal: made of visible ASCII")
    }

    /// Returns the id as a header value, for a forwarded request.
    pub fn as_header(&self) -> &HeaderValue {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests;
