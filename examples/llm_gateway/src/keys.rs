//! Access: keys with names, each with a limit of concurrent requests, and with its generations.

use std::str::FromStr;
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use millstream_resumable::Owner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::generation::Generations;

/// The cookie in which the page sends its key, because an `EventSource` sends no `Authorization`.
const PAGE_KEY: &str = "llm_gateway_key=";

/// `NAME=SECRET[:REQUESTS]` on the command line.
#[derive(Clone, Debug)]
pub(crate) struct KeyOption {
    name: String,
    secret: String,
    limit: Option<usize>,
}

impl FromStr for KeyOption {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.split_once('=').ok_or("write NAME=SECRET")?;
        let (secret, limit) = match rest.split_once(':') {
            None => (rest, None),
            Some((secret, limit)) => (secret, Some(limit.parse().map_err(|_| "the limit is not a number")?)),
        };
        // The characters of a bearer token, RFC 6750 section 2.1, which a cookie may have too.
        let is_token = |c: u8| c.is_ascii_alphanumeric() || b"-._~+/=".contains(&c);
        if name.is_empty() || secret.is_empty() || !secret.bytes().all(is_token) {
            return Err("name and secret are not empty, and a secret has letters, digits and -._~+/= only");
        }
        Ok(Self { name: name.to_owned(), secret: secret.to_owned(), limit })
    }
}

/// A key, or the one of everybody if there are no keys.
#[derive(Debug)]
pub(crate) struct Key {
    /// Empty for everybody.
    pub(crate) name: String,
    secret: String,
    limit: usize,
    permits: Arc<Semaphore>,
    pub(crate) generations: Generations,
}

impl Key {
    fn new(name: String, secret: String, limit: usize, generations: Generations) -> Arc<Self> {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { name, secret, limit, permits: Arc::new(Semaphore::new(limit)), generations })
    }

    /// Returns the owner of the generations of this key.
    pub(crate) fn owner(&self) -> Owner {
        if self.name.is_empty() { Owner::anyone() } else { self.name.as_str().into() }
    }

    /// Returns a permit for one request to an upstream, for as long as it takes.
    pub(crate) fn enter(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.permits).try_acquire_owned().map_err(|_| ApiError::too_many(self.limit))
    }

    /// Returns the number of requests in progress.
    pub(crate) fn running(&self) -> usize {
        self.limit - self.permits.available_permits()
    }
}

/// All keys.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<Arc<Key>>,
    /// Whether there are no keys, and everybody may ask.
    pub(crate) is_open: bool,
}

impl Keys {
    /// `limit` is the default for keys without a limit. Each key gets `generations` of its own, so that it cannot take the
    /// room of others. The error names keys that are equal.
    pub(crate) fn new(
        options: &[KeyOption],
        limit: usize,
        generations: impl Fn() -> Generations,
    ) -> Result<Self, String> {
        for (n, option) in options.iter().enumerate() {
            if options[..n].iter().any(|other| other.name == option.name || other.secret == option.secret) {
                return Err(format!("--key {}: another key has this name or this secret", option.name));
            }
        }
        if options.is_empty() {
            return Ok(Self {
                keys: vec![Key::new(String::new(), String::new(), limit, generations())],
                is_open: true,
            });
        }
        let key = |option: &KeyOption| {
            let limit = option.limit.unwrap_or(limit);
            Key::new(option.name.clone(), option.secret.clone(), limit, generations())
        };
        Ok(Self { keys: options.iter().map(key).collect(), is_open: false })
    }

    /// Returns the key of a request.
    pub(crate) fn of(&self, request: &Parts) -> Result<Arc<Key>, ApiError> {
        if self.is_open {
            return Ok(Arc::clone(&self.keys[0]));
        }
        let reads = request.method == Method::GET && request.uri.path().starts_with("/v1/generations/");
        let cookie = || page_key(&request.headers).filter(|_| reads);
        let secret = bearer(&request.headers).or_else(cookie).ok_or_else(ApiError::no_key)?;
        self.keys.iter().find(|key| is_same(&key.secret, secret)).map(Arc::clone).ok_or_else(ApiError::no_key)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn page_key(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|value| value.split("; ")).find_map(|cookie| cookie.strip_prefix(PAGE_KEY))
}

/// Compares in a time that does not depend on where the secrets differ.
fn is_same(secret: &str, other: &str) -> bool {
    let differences = secret.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    secret.len() == other.len() && std::hint::black_box(differences) == 0
}
