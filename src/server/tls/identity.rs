//! A certificate chain and its private key, from PEM (RFC 7468).

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
#[cfg(windows)]
use std::os::windows::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};

use super::error::TlsError;

/// Creates an identity from two PEM texts. The places are for errors.
pub(super) fn identity(
    (certificate, certificate_place): (&[u8], &str),
    (key, key_place): (&[u8], &str),
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let wrong = |why: String| TlsError::Certificate(certificate_place.to_owned(), why);
    let mut chain = Vec::new();
    for (index, der) in CertificateDer::pem_slice_iter(certificate).enumerate() {
        let der = der.map_err(|e| wrong(format!("no PEM: {e}")))?;
        ParsedCertificate::try_from(&der)
            .map_err(|e| wrong(format!("certificate {} does not parse: {e}", index + 1)))?;
        chain.push(der);
    }
    if chain.is_empty() {
        return Err(wrong("no certificate in it (`BEGIN CERTIFICATE`)".to_owned()));
    }

    let wrong = |why: String| TlsError::Key(key_place.to_owned(), why);
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| match e {
        pem::Error::NoItemsFound => {
            wrong("no private key in it (PKCS #8, PKCS #1 or SEC 1; one with a password cannot be read)".to_owned())
        }
        e => wrong(format!("no PEM: {e}")),
    })?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|e| wrong(format!("the private key cannot be used: {e}")))?;

    let identity = CertifiedKey::new(chain, key);
    match identity.keys_match() {
        // Keys of custom providers may not support the check.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(identity),
        Err(_) => Err(TlsError::Mismatch(certificate_place.to_owned(), key_place.to_owned())),
    }
}

/// Files of an identity, and their state at the last read.
#[derive(Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// `None` before the first read. The inner `None` is a missing file.
    read: Option<[Option<Stamp>; 2]>,
}

/// Changes when a file is replaced or written to. The inode detects a link that leads to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        let now = fs::metadata(path).ok()?;
        Some(Self { inode: (now.dev(), now.ino()), len: now.len(), changed: (now.ctime(), now.ctime_nsec()) })
    }

    /// Without numbers of files, their times of creation tell them apart.
    #[cfg(windows)]
    fn of(path: &Path) -> Option<Self> {
        let now = fs::metadata(path).ok()?;
        let changed = (now.last_write_time().cast_signed(), 0);
        Some(Self { inode: (now.creation_time(), 0), len: now.len(), changed })
    }
}

impl Files {
    pub(super) fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, read: None }
    }

    /// Returns whether the files have changed since the last read, successful or not.
    pub(super) fn have_changed(&self) -> bool {
        self.read != Some(self.stamps())
    }

    fn stamps(&self) -> [Option<Stamp>; 2] {
        [Stamp::of(&self.certificate), Stamp::of(&self.key)]
    }

    /// Reads both files. Blocks.
    pub(super) fn read(&mut self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        // Before the read, so that a write during it counts as a change.
        self.read = Some(self.stamps());
        let read = |path: &Path| fs::read(path).map_err(|e| TlsError::Read(path.to_owned(), e));
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        let (certificate_place, key_place) = (self.certificate.display().to_string(), self.key.display().to_string());
        identity((&certificate, &certificate_place), (&key, &key_place), provider)
    }
}
