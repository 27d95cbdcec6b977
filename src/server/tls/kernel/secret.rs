//! The secret behind a connection's records, and the keys that follow from it (RFC 8446 §7).

use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use tokio_rustls::rustls::{CipherSuite, KeyLog, ServerConfig, Tls13CipherSuite};
use zeroize::Zeroizing;

use crate::sys::tls_keys::{Cipher, Keys, NONCE};

/// Name of the server's traffic secret in the key log of rustls.
const OURS: &str = "SERVER_TRAFFIC_SECRET_0";

/// Keeps the secret of one connection. rustls has no other way to read the secret while the session continues to
/// receive.
pub(in crate::server::tls) struct SecretLog {
    /// The user's log.
    users: Arc<dyn KeyLog>,
    secret: OnceLock<OkmBlock>,
}

impl SecretLog {
    /// Returns a configuration for one connection, and its log.
    pub(super) fn of(config: &ServerConfig) -> (Arc<ServerConfig>, Arc<Self>) {
        let mut config = config.clone();
        let log = Arc::new(Self { users: Arc::clone(&config.key_log), secret: OnceLock::new() });
        config.key_log = Arc::clone(&log) as Arc<dyn KeyLog>;
        (Arc::new(config), log)
    }
}

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == OURS {
            let _ = self.secret.set(OkmBlock::new(secret));
        }
        if self.users.will_log(label) {
            self.users.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == OURS || self.users.will_log(label)
    }
}

impl fmt::Debug for SecretLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretLog").field("users", &self.users).finish_non_exhaustive()
    }
}

/// The server's traffic secret, with the cipher suite that uses it.
pub(in crate::server::tls) struct TrafficSecret {
    suite: &'static Tls13CipherSuite,
    cipher: Cipher,
    secret: OkmBlock,
}

impl TrafficSecret {
    /// Returns `None` if there is no secret, before TLS 1.3, or for a cipher that the kernel does not have.
    pub(super) fn new(suite: &'static Tls13CipherSuite, log: &SecretLog) -> Option<Self> {
        let cipher = match suite.common.suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Cipher::Aes128Gcm,
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Cipher::Aes256Gcm,
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Cipher::Chacha20Poly1305,
            _ => return None,
        };
        Some(Self { suite, cipher, secret: log.secret.get()?.clone() })
    }

    /// Returns the keys, for the record of this number and those behind it (§7.3).
    pub(super) fn keys(&self, sequence: u64) -> Keys {
        let expander = self.expander();
        let mut key = Zeroizing::new(vec![0; self.cipher.key_len()]);
        let mut nonce = Zeroizing::new([0; NONCE]);
        expand(&*expander, b"key", &mut key);
        expand(&*expander, b"iv", &mut *nonce);
        Keys { cipher: self.cipher, key, nonce, sequence }
    }

    /// Goes on to the secret behind a `KeyUpdate` (§7.2).
    pub(super) fn update(&mut self) {
        let mut secret = Zeroizing::new(vec![0; self.secret.as_ref().len()]);
        expand(&*self.expander(), b"traffic upd", &mut secret);
        self.secret = OkmBlock::new(&secret);
    }

    fn expander(&self) -> Box<dyn HkdfExpander> {
        self.suite.hkdf_provider.expander_for_okm(&self.secret)
    }
}

/// Computes `HKDF-Expand-Label(secret, label, "", out.len())`, RFC 8446 §7.1.
fn expand(expander: &dyn HkdfExpander, label: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    let len = (out.len() as u16).to_be_bytes();
    let label_len = [(PREFIX.len() + label.len()) as u8];
    let expanded = expander.expand_slice(&[&len, &label_len, PREFIX, label, &[0]], out);
    assert!(expanded.is_ok(), "internal: {} bytes of a key", out.len());
}

#[cfg(test)]
mod tests;
