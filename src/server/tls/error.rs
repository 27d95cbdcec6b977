//! Errors of certificates and keys.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio_rustls::rustls;

/// Error of a certificate or its key. A previous configuration stays in use.
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
    /// The cryptography failed, for instance without randomness.
    Setup(rustls::Error),
    /// No files to reload: not created by [`Tls::from_files`](super::Tls::from_files).
    NoFiles,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, _) => write!(f, "{}: the file cannot be read", path.display()),
            Self::Certificate(place, why) | Self::Key(place, why) => write!(f, "{place}: {why}"),
            Self::Mismatch(certificate, key) => {
                write!(f, "{key}: this is not the private key of the first certificate in {certificate}")
            }
            Self::Setup(_) => f.write_str("TLS cannot be set up"),
            Self::NoFiles => f.write_str("the certificate was not read from files: replace it by `replace_pem`"),
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

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Setup(error)
    }
}
