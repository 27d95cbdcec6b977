//! Errors of configurations.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio_rustls::rustls;

/// Error of a TLS configuration or a file it is made of. A previous configuration stays in use.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// No certificate, or one that does not parse: place and reason.
    Certificate(String, String),
    /// No private key, or one that does not parse: place and reason.
    Key(String, String),
    /// The key belongs to another certificate: places of the certificate and the key.
    Mismatch(String, String),
    /// Roots for certificates of clients that cannot be used: place and reason.
    ClientRoots(String, String),
    /// Revocation lists for certificates of clients that cannot be used: place and reason.
    Revocations(String, String),
    /// Keys for session tickets that cannot be used: place and reason.
    TicketKeys(String, String),
    /// A [builder](super::TlsBuilder) without a certificate.
    NoCertificate,
    /// An option of a [builder](super::TlsBuilder) whose value is not allowed: its name, and what is allowed.
    Setting(&'static str, String),
    /// The cryptography failed, for instance without randomness.
    Setup(rustls::Error),
    /// No files to reload: everything was given as text or as a configuration of rustls.
    NoFiles,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, _) => write!(f, "{}: the file cannot be read", path.display()),
            Self::Certificate(place, why)
            | Self::Key(place, why)
            | Self::ClientRoots(place, why)
            | Self::Revocations(place, why)
            | Self::TicketKeys(place, why) => write!(f, "{place}: {why}"),
            Self::Mismatch(certificate, key) => {
                write!(f, "{key}: this is not the private key of the first certificate in {certificate}")
            }
            Self::Setting(option, why) => write!(f, "invalid {option}: {why}"),
            Self::NoCertificate => f.write_str("no certificate: add one by `certificate_files` or `certificate_pem`"),
            Self::Setup(_) => f.write_str("TLS cannot be set up"),
            Self::NoFiles => f.write_str("nothing was read from files: replace the certificate by `replace_pem`"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read(_, e) => Some(e),
            Self::Setup(e) => Some(e),
            _ => None,
        }
    }
}

/// The kind of the source if a file cannot be read; `InvalidInput` for options that are wrong or missing; `InvalidData`
/// for contents that cannot be used; else `Other`.
impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match &error {
            TlsError::Read(_, e) => e.kind(),
            TlsError::Certificate(..)
            | TlsError::Key(..)
            | TlsError::Mismatch(..)
            | TlsError::ClientRoots(..)
            | TlsError::Revocations(..)
            | TlsError::TicketKeys(..) => io::ErrorKind::InvalidData,
            TlsError::Setting(..) | TlsError::NoCertificate | TlsError::NoFiles => io::ErrorKind::InvalidInput,
            TlsError::Setup(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Setup(error)
    }
}
