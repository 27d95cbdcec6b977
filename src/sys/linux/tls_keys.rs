//! Keys for records of TLS 1.3.

use zeroize::Zeroizing;

/// Bytes of a nonce of each cipher, RFC 8446 §5.3.
pub(crate) const NONCE: usize = 12;

/// A cipher of TLS 1.3, RFC 8446 §B.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

impl Cipher {
    /// Returns the number of bytes in a key.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }
}

/// The keys that encrypt records from a given record on.
pub(crate) struct Keys {
    pub(crate) cipher: Cipher,
    /// As long as the cipher needs.
    pub(crate) key: Zeroizing<Vec<u8>>,
    pub(crate) nonce: Zeroizing<[u8; NONCE]>,
    /// Number of the next record.
    pub(crate) sequence: u64,
}
