//! Session tickets whose keys are in a file, for restarts and for several instances.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_rustls::rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, NONCE_LEN, OutboundChunks, OutboundPlainMessage,
};
use tokio_rustls::rustls::crypto::tls13::expand;
use tokio_rustls::rustls::crypto::{CryptoProvider, SecureRandom};
use tokio_rustls::rustls::server::ProducesTickets;
use tokio_rustls::rustls::{ContentType, ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite};

use super::error::TlsError;
use crate::counters::log;

/// Bytes of a secret in the file.
const SECRET: usize = 32;
/// Most secrets in a file.
const SECRETS_MAX: usize = 16;
/// Secrets kept by a rotation: the tickets of the previous two are accepted.
const KEPT: usize = 3;
/// Age at which a ticket is refused, whatever its key: half a day, as the tickets of rustls.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

const NAME: usize = 16;
const KEY: usize = 32;
const TIME: usize = 8;

/// A file of secrets, the newest first.
#[derive(Clone, Debug)]
pub(super) struct TicketFile {
    pub(super) path: PathBuf,
    rotate_every: Option<Duration>,
    /// Whether the last rotation failed. It is tried again after a reload for another reason.
    stuck: bool,
}

impl TicketFile {
    /// `rotate_every` is the age of the newest secret at which a new one is put before it.
    pub(super) fn new(path: PathBuf, rotate_every: Option<Duration>) -> Self {
        Self { path, rotate_every, stuck: false }
    }

    /// Reads the file. Blocks. Tickets are bound to `purpose`: those of another purpose are refused.
    pub(super) fn read(&self, provider: &CryptoProvider, purpose: &[u8]) -> Result<Tickets, TlsError> {
        let wrong = |why: String| TlsError::TicketKeys(self.path.display().to_string(), why);
        let secrets = fs::read(&self.path).map_err(|e| TlsError::Read(self.path.clone(), e))?;
        if secrets.is_empty() || !secrets.len().is_multiple_of(SECRET) || secrets.len() > SECRET * SECRETS_MAX {
            return Err(wrong(format!(
                "{} bytes: expected 1 to {SECRETS_MAX} keys of {SECRET} random bytes, the newest first \
                 (`openssl rand {SECRET}`)",
                secrets.len()
            )));
        }
        let suite = provider.cipher_suites.iter().filter_map(SupportedCipherSuite::tls13);
        let suite = suite.into_iter().find(|suite| suite.aead_alg.key_len() == KEY);
        let suite =
            suite.ok_or_else(|| wrong("they need a cipher suite of TLS 1.3 with keys of 32 bytes".to_owned()))?;
        let keys = secrets.chunks_exact(SECRET).map(|secret| Key::derived(suite, secret, purpose)).collect();
        Ok(Tickets { keys, random: provider.secure_random })
    }

    /// Returns whether the server should rotate the keys now.
    pub(super) fn is_due(&self) -> bool {
        !self.stuck && self.has_old_key()
    }

    /// A file that does not exist is created by a rotation.
    fn has_old_key(&self) -> bool {
        let modified = fs::metadata(&self.path).and_then(|now| now.modified());
        self.rotate_every.is_some_and(|every| match modified {
            Ok(modified) => modified.elapsed().is_ok_and(|age| age >= every),
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        })
    }

    /// Rotates the keys if they are old. A failure is logged, and the old keys stay in use. Blocks.
    pub(super) fn rotate_if_due(&mut self, provider: &CryptoProvider) {
        if self.has_old_key() {
            let rotated = self.rotate(provider.secure_random);
            self.stuck = rotated.is_err();
            if let Err(e) = rotated {
                log::ticket_keys_kept(&self.path, &e);
            }
        }
    }

    /// Replaces the file by one with a new secret before the newest ones of the old. If two processes do so at the same
    /// time, the later one wins. Tickets of the other one then lead to full handshakes.
    fn rotate(&self, random: &dyn SecureRandom) -> io::Result<()> {
        let mut secrets = vec![0; SECRET];
        random.fill(&mut secrets).map_err(|_| io::Error::other("no random bytes"))?;
        match fs::read(&self.path) {
            Ok(old) => secrets.extend(old.iter().take(SECRET * (KEPT - 1))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = self.path.with_file_name(name);
        let written = private(&new).and_then(|mut file| {
            file.write_all(&secrets)?;
            file.sync_all()
        });
        let replaced = written.and_then(|()| fs::rename(&new, &self.path));
        if replaced.is_err() {
            let _ = fs::remove_file(&new);
        }
        replaced
    }
}

/// Creates a file that only its owner can read.
fn private(path: &Path) -> io::Result<File> {
    // An interrupted rotation may have left a file. Another file or link with this name could be readable by others.
    let _ = fs::remove_file(path);
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Encrypts and decrypts tickets: name of the key, nonce, and the encrypted time and state.
pub(super) struct Tickets {
    /// The first encrypts, all decrypt.
    keys: Vec<Key>,
    random: &'static dyn SecureRandom,
}

/// The cryptography is that of records of TLS 1.3 (RFC 8446 §5.2), so that every provider of rustls has it. Each ticket
/// is the first record of a connection with its own nonce.
struct Key {
    name: [u8; NAME],
    key: [u8; KEY],
    suite: &'static Tls13CipherSuite,
}

impl Key {
    /// Derives name and key by HKDF (RFC 5869).
    fn derived(suite: &'static Tls13CipherSuite, secret: &[u8], purpose: &[u8]) -> Self {
        let expander = suite.hkdf_provider.extract_from_secret(None, secret);
        let label = b"millstream session ticket ".as_slice();
        let (name, key) =
            (expand(&*expander, &[label, b"name ", purpose]), expand(&*expander, &[label, b"key ", purpose]));
        Self { name, key, suite }
    }

    fn seal(&self, nonce: [u8; NONCE_LEN], now: Duration, plain: &[u8]) -> Option<Vec<u8>> {
        let content = [now.as_secs().to_be_bytes().as_slice(), plain].concat();
        let payload = OutboundChunks::Single(&content);
        let record = OutboundPlainMessage { typ: RECORD.0, version: RECORD.1, payload };
        let mut encrypter = self.suite.aead_alg.encrypter(AeadKey::from(self.key), Iv::from(nonce));
        let sealed = encrypter.encrypt(record, 0).ok()?;
        Some([&self.name, nonce.as_slice(), sealed.payload.as_ref()].concat())
    }

    fn open(&self, now: Duration, sealed: &[u8]) -> Option<Vec<u8>> {
        let (&nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let record = InboundOpaqueMessage::new(RECORD.0, RECORD.1, &mut sealed);
        let mut decrypter = self.suite.aead_alg.decrypter(AeadKey::from(self.key), Iv::from(nonce));
        let record = decrypter.decrypt(record, 0).ok()?;
        let (&time, plain) = record.payload.split_first_chunk::<TIME>()?;
        let age = now.as_secs().abs_diff(u64::from_be_bytes(time));
        (record.typ == RECORD.0 && age <= LIFETIME.as_secs()).then(|| plain.to_vec())
    }
}

const RECORD: (ContentType, ProtocolVersion) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        self.keys.first()?.seal(nonce, now(), plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = cipher.split_first_chunk::<NAME>()?;
        self.keys.iter().find(|key| key.name == *name)?.open(now(), sealed)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
