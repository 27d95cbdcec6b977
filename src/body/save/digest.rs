//! Digests of a body on its way to the file, and the fields that announce them.
//!
//! `Content-Digest` and `Repr-Digest` are those of [RFC 9530](https://www.rfc-editor.org/rfc/rfc9530), `Content-MD5` is
//! that of [RFC 1864](https://www.rfc-editor.org/rfc/rfc1864).

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_RANGE, TRAILER};
use md5::Md5;
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};
use sha2::{Digest, Sha256};

use super::error::Cause;
use crate::fs::receive::Inspect;

const CONTENT_DIGEST: &str = "Content-Digest";
const REPR_DIGEST: &str = "Repr-Digest";
const CONTENT_MD5: &str = "Content-MD5";

#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) sha256: bool,
    pub(super) crc32c: bool,
    /// Whether a body without a digest is refused.
    pub(super) required: bool,
    announced: Option<Announced>,
}

/// The digests that the header fields of a message announce.
#[derive(Debug)]
struct Announced {
    expected: Result<Vec<Expected>, Cause>,
    /// Whether the trailer section shall have `Content-MD5`.
    md5_follows: bool,
}

/// A digest, and the field that it is from.
#[derive(Debug)]
struct Expected {
    field: &'static str,
    digest: Value,
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Sha256([u8; 32]),
    Md5([u8; 16]),
}

pub(super) struct Digests {
    /// Whether the SHA-256 is reported.
    reports: bool,
    sha256: Option<Sha256>,
    crc32c: Option<u32>,
    md5: Option<Md5>,
    expected: Vec<Expected>,
    /// Whether trailers are checked.
    checks: bool,
    required: bool,
    whole: bool,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) sha256: Option<[u8; 32]>,
    pub(super) crc32c: Option<u32>,
    pub(super) verified: bool,
}

impl Wanted {
    pub(super) fn verify(&mut self, headers: &HeaderMap) {
        let names =
            || headers.get_all(TRAILER).iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
        let names = |field: &str| names().any(|name| name.trim().eq_ignore_ascii_case(field));
        self.announced = Some(Announced { expected: read(headers), md5_follows: names(CONTENT_MD5) });
    }

    /// `whole`: the body is a representation, not a part of one.
    pub(super) fn start(self, whole: bool) -> Result<Digests, Cause> {
        let checks = self.announced.is_some();
        let (mut expected, md5_follows) = match self.announced {
            Some(announced) => (announced.expected?, announced.md5_follows),
            None => (Vec::new(), false),
        };
        expected.retain(|expected| expected.counts(whole));
        let sha256 = expected.iter().any(|expected| matches!(expected.digest, Value::Sha256(_)));
        let md5 = expected.iter().any(|expected| matches!(expected.digest, Value::Md5(_)));
        // Trailers need not be announced, and in HTTP/2 follow a body of known length, too.
        Ok(Digests {
            reports: self.sha256,
            sha256: (self.sha256 || sha256 || checks).then(Sha256::new),
            crc32c: self.crc32c.then_some(0),
            md5: (md5 || md5_follows).then(Md5::new),
            expected,
            checks,
            required: self.required,
            whole,
        })
    }
}

impl Inspect for Digests {
    fn see(&mut self, pieces: &[Bytes]) {
        for piece in pieces {
            if let Some(sha256) = &mut self.sha256 {
                sha256.update(piece);
            }
            if let Some(crc32c) = &mut self.crc32c {
                *crc32c = crc32c::crc32c_append(*crc32c, piece);
            }
            if let Some(md5) = &mut self.md5 {
                md5.update(piece);
            }
        }
    }
}

impl Digests {
    /// Fails if a field of the header or the trailer section is malformed, or has another digest.
    pub(super) fn check(mut self, trailers: &HeaderMap) -> Result<Found, Cause> {
        if self.checks {
            let whole = self.whole;
            self.expected.extend(read(trailers)?.into_iter().filter(|expected| expected.counts(whole)));
        }
        let sha256 = self.sha256.map(|sha256| sha256.finalize().into());
        let md5 = self.md5.map(|md5| md5.finalize().into());
        let mut verified = false;
        for Expected { field, digest } in self.expected {
            let computed = match digest {
                Value::Sha256(_) => sha256.map(Value::Sha256),
                Value::Md5(_) => md5.map(Value::Md5),
            };
            match computed {
                Some(computed) if computed == digest => verified = true,
                Some(_) => return Err(Cause::Mismatch(field)),
                None => {}
            }
        }
        if self.required && !verified {
            return Err(Cause::NoDigest);
        }
        Ok(Found { sha256: sha256.filter(|_| self.reports), crc32c: self.crc32c, verified })
    }
}

impl Expected {
    /// The digest of a representation does not apply to a part of it.
    fn counts(&self, whole: bool) -> bool {
        whole || self.field != REPR_DIGEST
    }
}

/// Reads the digests of the known algorithms.
fn read(headers: &HeaderMap) -> Result<Vec<Expected>, Cause> {
    let mut found = Vec::new();
    for field in [CONTENT_DIGEST, REPR_DIGEST] {
        let lines: Vec<&[u8]> = headers.get_all(field).iter().map(http::HeaderValue::as_bytes).collect();
        // RFC 9651 §4.2: the lines of a field are one list.
        let digests: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().map_err(|_| Cause::Malformed(field))?;
        let digest = match digests.get("sha-256") {
            Some(ListEntry::Item(item)) => of_item(item),
            Some(ListEntry::InnerList(_)) => None,
            None => continue,
        };
        let digest = Value::Sha256(digest.ok_or(Cause::Malformed(field))?);
        if field == CONTENT_DIGEST || !headers.contains_key(CONTENT_RANGE) {
            found.push(Expected { field, digest });
        }
    }
    for value in headers.get_all(CONTENT_MD5) {
        // Base64, as in a structured field, but without its colons.
        let item: Option<Item> = Parser::new(&[b":", value.as_bytes(), b":"].concat()).parse().ok();
        let digest = item.as_ref().and_then(of_item).ok_or(Cause::Malformed(CONTENT_MD5))?;
        found.push(Expected { field: CONTENT_MD5, digest: Value::Md5(digest) });
    }
    Ok(found)
}

fn of_item<const N: usize>(item: &Item) -> Option<[u8; N]> {
    match &item.bare_item {
        BareItem::ByteSequence(bytes) => bytes[..].try_into().ok(),
        _ => None,
    }
}
