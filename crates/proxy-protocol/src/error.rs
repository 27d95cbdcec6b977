//! Errors of headers.

use std::fmt;
use std::io;

/// Bytes are not a [`ProxyHeader`](crate::ProxyHeader), or one cannot be built of its parts. The text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderError(pub(crate) &'static str);

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for HeaderError {}

/// `InvalidData`.
impl From<HeaderError> for io::Error {
    fn from(error: HeaderError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
