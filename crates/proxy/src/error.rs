//! Errors of options, of addresses, and of the injector.

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

/// An option of a [`Proxy`](super::Proxy) or an [`Injector`](super::Injector) has an invalid value. The error names the
/// option, the value, and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    option: &'static str,
    value: String,
    allowed: &'static str,
}

impl ConfigError {
    pub(crate) fn new(option: &'static str, value: impl Into<String>, allowed: &'static str) -> Self {
        Self { option, value: value.into(), allowed }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { option, value, allowed } = self;
        write!(f, "invalid {option}: {value}; allowed: {allowed}")
    }
}

impl std::error::Error for ConfigError {}

/// `InvalidInput`.
impl From<ConfigError> for io::Error {
    fn from(error: ConfigError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// The text is not the address of an [`Upstream`](super::Upstream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamError(pub(crate) String);

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if cfg!(not(feature = "__tls")) && self.0.starts_with("https:") {
            return write!(
                f,
                "`{}` needs TLS: build with the feature `tls-ring` or `tls-aws-lc-rs` of millstream-proxy",
                self.0
            );
        }
        let forms = "http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:PATH";
        write!(f, "`{}` is not the address of a server: give {forms}", self.0)
    }
}

impl std::error::Error for UpstreamError {}

/// `InvalidInput`.
impl From<UpstreamError> for io::Error {
    fn from(error: UpstreamError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// A connection could not be secured. This error goes to the log only, not to clients.
#[cfg(feature = "__tls")]
#[derive(Debug)]
pub(crate) struct HandshakeError {
    to: String,
    error: io::Error,
}

#[cfg(feature = "__tls")]
impl HandshakeError {
    pub(crate) fn new(to: &impl fmt::Display, error: io::Error) -> Self {
        Self { to: to.to_string(), error }
    }

    fn advice(&self) -> &'static str {
        use millstream::server::tls::rustls::Error;
        let error = self.error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        match (error, self.error.kind()) {
            (Some(Error::InvalidCertificate(_)), _) => {
                "check its certificate, the name in its address, and the roots given to ProxyBuilder::upstream_tls"
            }
            (Some(Error::AlertReceived(_)), _) => {
                "it refuses: check its log, and the client certificate if it asks for one"
            }
            (Some(_), _) => "check that this port speaks TLS",
            (None, io::ErrorKind::TimedOut) => "it does not answer in the time to connect",
            (None, _) => "it ended the connection: check its log",
        }
    }
}

#[cfg(feature = "__tls")]
impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no TLS connection to {}; {}", self.to, self.advice())
    }
}

#[cfg(feature = "__tls")]
impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
