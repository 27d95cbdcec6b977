//! Requests to workers, signed by a key of the server.

use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderName};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair};
use ring::{digest, hmac};
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::Service;

use super::config::is_public;
use crate::store::now;

const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// Bytes of an answer that are read.
const ANSWER_MAX: usize = 64 << 10;

/// The key that signs requests and tokens. Its file makes it the same after a restart.
pub(crate) struct Key {
    pair: Ed25519KeyPair,
    tokens: hmac::Key,
    pub(crate) id: String,
}

impl Key {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut seed = [0; 32];
        match std::fs::read(path) {
            Ok(bytes) => {
                let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "the key does not have 32 bytes");
                seed = bytes.try_into().map_err(wrong)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                SystemRandom::new().fill(&mut seed).map_err(|_| io::Error::other("there are no random bytes"))?;
                // Written under another name, so that no crash leaves a part of it.
                let new = path.with_extension("new");
                let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
                file.write_all(&seed).and_then(|()| file.sync_all())?;
                std::fs::rename(new, path)?;
                File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            }
            Err(e) => return Err(e),
        }
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed");
        let id = digest::digest(&digest::SHA256, pair.public_key().as_ref());
        let id = format!("ds_{}", URL_SAFE_NO_PAD.encode(&id.as_ref()[..12]));
        let tokens = digest::digest(&digest::SHA256, &[b"tokens", &seed[..]].concat());
        Ok(Self { pair, tokens: hmac::Key::new(hmac::HMAC_SHA256, tokens.as_ref()), id })
    }

    /// Returns the set with the public key, as in [RFC 7517](https://www.rfc-editor.org/rfc/rfc7517) and
    /// [RFC 8037](https://www.rfc-editor.org/rfc/rfc8037).
    pub(crate) fn set(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.pair.public_key());
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": self.id, "use": "sig", "alg": "EdDSA", "x": x }] })
    }

    /// Returns the value of `Webhook-Signature`.
    fn sign(&self, body: &[u8], time: i64) -> String {
        let signature = self.pair.sign(&[format!("{time}.").as_bytes(), body].concat());
        format!("t={time},kid={},ed25519={}", self.id, URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns the token of a wake. It says nothing, and nobody else can make it.
    pub(crate) fn token(&self, wake: &[&str]) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.tokens, &fields(wake)))
    }

    pub(crate) fn is_token(&self, token: &str, wake: &[&str]) -> bool {
        let token = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        hmac::verify(&self.tokens, &fields(wake), &token).is_ok()
    }

    /// Returns the name of the file of a subscription, whose own name may have any characters.
    pub(crate) fn file_name(&self, root: &str, id: &str) -> String {
        let name = digest::digest(&digest::SHA256, &fields(&[root, id]));
        format!("{}.json", URL_SAFE_NO_PAD.encode(&name.as_ref()[..18]))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Key").field(&self.id).finish()
    }
}

/// Returns texts as bytes that no other texts have.
fn fields(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()).collect()
}

/// Returns the id of a wake, which is unique.
pub(crate) fn wake_id() -> String {
    let mut id = [0; 12];
    SystemRandom::new().fill(&mut id).expect("the system has random bytes");
    format!("w_{}", URL_SAFE_NO_PAD.encode(id))
}

/// Sends requests to workers.
#[derive(Debug)]
pub(crate) struct Sender {
    client: Client<HttpsConnector<HttpConnector<Lookup>>, Full<Bytes>>,
    /// Whether workers may be on this machine.
    pub(crate) local: bool,
}

impl Sender {
    pub(crate) fn new(local: bool) -> Self {
        let mut http = HttpConnector::new_with_resolver(Lookup { local });
        http.enforce_http(false);
        http.set_nodelay(true);
        let provider = Arc::new(default_provider());
        let roots = rustls_native_certs::load_native_certs();
        let mut trusted = RootCertStore::empty();
        if let (0, _) = trusted.add_parsable_certificates(roots.certs) {
            eprintln!(
                "webhooks by https will fail: this machine has no certificates of authorities {:?}",
                roots.errors
            );
        }
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("ring has them").with_root_certificates(trusted).with_no_client_auth();
        let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1();
        Self {
            client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(builder.wrap_connector(http)),
            local,
        }
    }

    /// Sends a wake. Returns whether the worker has done it already. Redirections are not followed.
    pub(crate) async fn send(&self, url: &str, body: Bytes, key: &Key, time: Duration) -> Result<bool, String> {
        let signature = key.sign(&body, now() / 1000);
        let request = Request::post(url).header(CONTENT_TYPE, "application/json").header(SIGNATURE, signature);
        let request = request.body(Full::new(body)).map_err(|e| format!("{url}: {e}"))?;
        let answer = async {
            let (head, body) = self.client.request(request).await.map_err(|e| told(&e))?.into_parts();
            if !head.status.is_success() {
                return Err(format!("it answered {}", head.status));
            }
            // The body of an answer is only asked whether it is one.
            let body = Limited::new(body, ANSWER_MAX).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            Ok(serde_json::from_slice(&body).is_ok_and(|answer: Answer| answer.done))
        };
        let answer = tokio::time::timeout(time, answer).await;
        answer.unwrap_or_else(|_| Err("it did not answer in time".to_owned())).map_err(|e| format!("{url}: {e}"))
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    done: bool,
}

/// Returns an error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Looks up names. Addresses that are not public are left out, whatever the name was when the subscription was made.
#[derive(Clone, Debug)]
struct Lookup {
    local: bool,
}

impl Service<Name> for Lookup {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let local = self.local && name.as_str() == "localhost";
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let usable: Vec<_> =
                found.filter(|addr| local && addr.ip().is_loopback() || is_public(addr.ip())).collect();
            if usable.is_empty() {
                return Err(io::Error::other("the name has no public address"));
            }
            Ok(usable.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_key_is_kept_and_its_signatures_and_tokens_are_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let (key, again) = (Key::open(&path).unwrap(), Key::open(&path).unwrap());
        let other = Key::open(&dir.path().join("other")).unwrap();
        assert!(key.id == again.id && key.id != other.id);

        let value = key.sign(b"body", 7);
        let signature = value.strip_prefix(&format!("t=7,kid={},ed25519=", key.id)).unwrap();
        let public = key.set()["keys"][0]["x"].as_str().map(|x| URL_SAFE_NO_PAD.decode(x).unwrap()).unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let verify = |text: &[u8]| UnparsedPublicKey::new(&ED25519, &public).verify(text, &signature).is_ok();
        assert!(verify(b"7.body") && !verify(b"8.body"));

        let token = key.token(&["a", "b"]);
        assert!(again.is_token(&token, &["a", "b"]));
        for wake in [&["ab", ""][..], &["a"], &["a", "c"]] {
            assert!(!key.is_token(&token, wake), "{wake:?}");
        }
        assert!(!other.is_token(&token, &["a", "b"]) && !key.is_token("", &["a", "b"]));
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Key::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn names_of_this_machine_are_not_looked_up_unless_they_may_be() {
        for local in [false, true] {
            let found = Lookup { local }.call("localhost".parse().unwrap()).await;
            assert_eq!(found.is_ok(), local);
        }
    }
}
