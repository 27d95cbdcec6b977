//! Errors of the injector, and of addresses.

use std::fmt;
use std::io;

/// Reason why a message gets no lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InjectError {
    /// The head does not end within the limit.
    #[non_exhaustive]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A CR without LF in the head. [RFC 9112 §2.2](https://www.rfc-editor.org/rfc/rfc9112#section-2.2) forbids it.
    BareCr,
    /// The stream ended in the head.
    Ended,
}

impl fmt::Display for InjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the head of the message is larger than {limit} bytes"),
            Self::BareCr => f.write_str("the head of the message has a CR without LF"),
            Self::Ended => f.write_str("the stream ended in the head of a message"),
        }
    }
}

impl std::error::Error for InjectError {}

/// `UnexpectedEof` for [`InjectError::Ended`], else `InvalidData`.
impl From<InjectError> for io::Error {
    fn from(error: InjectError) -> Self {
        let kind = match error {
            InjectError::Ended => io::ErrorKind::UnexpectedEof,
            InjectError::TooLarge { .. } | InjectError::BareCr => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
/// The text is not the address of an [`Upstream`](super::Upstream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamError(pub(super) String);

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not the address of a server: give http://HOST:PORT, HOST:PORT or unix:PATH", self.0)
    }
}

impl std::error::Error for UpstreamError {}
