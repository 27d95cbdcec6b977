//! Digests that clients announce, in the header and in trailers.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use millstream::body::{Save, SaveError, Saved};
use millstream::fs::Durability;

use super::{JOB, hex, holds, only, start};
use testkit::http::{Raw, on_both, sha256};
use testkit::noise;

fn headers(lines: &[(&'static str, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn sha(bytes: &[u8]) -> String {
    format!("sha-256=:{}:", BASE64_STANDARD.encode(sha256(bytes)))
}

fn md5(bytes: &[u8]) -> String {
    use md5::{Digest, Md5};
    BASE64_STANDARD.encode(Md5::digest(bytes))
}

async fn saved(save: Save, bytes: &[u8], trailers: Option<HeaderMap>) -> Result<Saved, SaveError> {
    let bytes = Bytes::copy_from_slice(bytes);
    let save = save.durability(Durability::None);
    match trailers {
        None => save.run(Full::new(bytes)).await,
        Some(trailers) => {
            let frames = [Ok::<_, std::io::Error>(Frame::data(bytes)), Ok(Frame::trailers(trailers))];
            save.run(StreamBody::new(stream::iter(frames))).await
        }
    }
}

#[test]
fn right_digests_pass_and_wrong_ones_leave_nothing() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for len in [0, 10, JOB + 1] {
            let bytes = noise(len);
            let wrong = b"other bytes";
            for (name, right, other) in [
                ("content-digest", sha(&bytes), sha(wrong)),
                ("repr-digest", sha(&bytes), sha(wrong)),
                ("content-md5", md5(&bytes), md5(wrong)),
                (
                    "content-digest",
                    format!("sha-512=:AA==:, unixsum=3, {}", sha(&bytes)),
                    format!("a=1,{}", sha(wrong)),
                ),
            ] {
                let trailer = || headers(&[("trailer", name.to_owned())]);
                for (in_header, in_trailer) in [(true, false), (false, true), (true, true)] {
                    let of =
                        |digest: &String, on: bool| if on { headers(&[(name, digest.clone())]) } else { trailer() };
                    let trailers = |digest: &String| in_trailer.then(|| headers(&[(name, digest.clone())]));
                    let mut header = of(&right, in_header);
                    header.extend(trailer());
                    let verified = saved(Save::new(&path).verify(&header), &bytes, trailers(&right)).await.unwrap();
                    assert!(verified.verified, "{name} {in_header} {in_trailer}");
                    assert_eq!(verified.sha256, None, "not asked for");
                    holds(&path, &bytes);
                    std::fs::remove_file(&path).unwrap();
                    // The wrong one in either place.
                    let mut header = of(&if in_trailer { right.clone() } else { other.clone() }, in_header);
                    header.extend(trailer());
                    let error = saved(Save::new(&path).verify(&header), &bytes, trailers(&other)).await.unwrap_err();
                    assert!(error.is_digest_mismatch() && !error.is_malformed_digest(), "{name}: {error:?}");
                    assert_eq!(error.status(), 400);
                    assert!(error.to_string().to_lowercase().contains(name), "{error}");
                    only(dir.path(), &[]).await;
                    // Without `verify` nothing is checked.
                    saved(Save::new(&path), &bytes, trailers(&other)).await.unwrap();
                    std::fs::remove_file(&path).unwrap();
                }
            }
        }
    });
}

#[test]
fn a_mismatch_leaves_the_old_file() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "old").unwrap();
        let header = headers(&[("content-digest", sha(b"other"))]);
        let error = saved(Save::new(&path).verify(&header), &noise(2 * JOB), None).await.unwrap_err();
        assert!(error.is_digest_mismatch());
        holds(&path, b"old");
        only(dir.path(), &["file"]).await;
    });
}

#[test]
fn malformed_fields_are_refused() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (name, value) in [
            ("content-digest", "sha-256=:not base64!:"),
            ("content-digest", "sha-256=:AAAA:"),
            ("content-digest", "sha-256=abc"),
            ("content-digest", "sha-256=(:AAAA:)"),
            ("content-digest", "sha-256"),
            ("repr-digest", "sha-256=:"),
            ("repr-digest", "\u{7f}"),
            ("content-md5", "AAAA"),
            ("content-md5", "%%%%"),
            ("content-md5", ""),
        ] {
            let Ok(value) = value.parse::<hyper::header::HeaderValue>() else { continue };
            let mut header = HeaderMap::new();
            header.append(name, value.clone());
            for trailers in [None, Some(header.clone())] {
                let in_header = if trailers.is_none() { header.clone() } else { HeaderMap::new() };
                let error = saved(Save::new(&path).verify(&in_header), b"bytes", trailers).await.unwrap_err();
                assert!(error.is_malformed_digest() && !error.is_digest_mismatch(), "{name}: {value:?}: {error:?}");
                assert_eq!(error.status(), 400);
                only(dir.path(), &[]).await;
            }
        }
    });
}

#[test]
fn what_is_not_known_or_not_of_this_body_is_not_checked() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let range = ("content-range", "bytes 0-4/100".to_owned());
        for lines in [
            vec![],
            vec![("content-digest", "sha-512=:AAAA:".to_owned())],
            vec![("repr-digest", sha(b"the whole")), range.clone()],
        ] {
            let found = saved(Save::new(&path).verify(&headers(&lines)), b"bytes", None).await.unwrap();
            assert!(!found.verified, "{lines:?}");
        }
        // The digest of a representation does not count for a part of it, but the digest of the content does.
        std::fs::remove_file(&path).unwrap();
        let part = |lines: &[_]| Save::new(&path).continue_at(0).verify(&headers(lines));
        assert!(!saved(part(&[("repr-digest", sha(b"whole"))]), b"bytes", None).await.unwrap().verified);
        std::fs::remove_file(&path).unwrap();
        assert!(saved(part(&[("content-digest", sha(b"bytes"))]), b"bytes", None).await.unwrap().verified);
    });
}

#[test]
fn a_digest_may_be_required() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let save = |lines: &[_]| Save::new(&path).verify(&headers(lines)).require_digest();
        for lines in [vec![], vec![("content-digest", "sha-512=:AAAA:".to_owned())]] {
            let error = saved(save(&lines), b"bytes", None).await.unwrap_err();
            assert!(error.is_no_digest() && error.status() == 400, "{error}");
        }
        let error = saved(Save::new(&path).require_digest(), b"bytes", None).await.unwrap_err();
        assert!(error.is_no_digest(), "nothing is verified without header fields: {error}");
        only(dir.path(), &[]).await;
        assert!(saved(save(&[("content-digest", sha(b"bytes"))]), b"bytes", None).await.unwrap().verified);
        let trailers = headers(&[("content-digest", sha(b"other"))]);
        assert!(saved(save(&[]), b"other", Some(trailers)).await.unwrap().verified);
        holds(&path, b"other");
    });
}

/// The digests are those of other implementations.
#[test]
fn digests_are_reported() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 9, 3 * JOB] {
            let bytes = noise(len);
            let save = Save::new(dir.path().join("file")).sha256().crc32c();
            let found = saved(save, &bytes, None).await.unwrap();
            assert_eq!(found.sha256, Some(sha256(&bytes)));
            assert_eq!(found.sha256_hex(), Some(hex(&bytes)));
            let bitwise = bytes.iter().fold(!0u32, |crc, &byte| {
                (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
            });
            assert_eq!(found.crc32c, Some(!bitwise));
            assert!(!found.verified);
        }
    });
}

/// hyper hands trailers of a chunked body on.
#[test]
fn trailers_of_a_client_are_checked() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let addr = start(dir.path()).await;
        for (digest, status) in [(sha(b"some bytes"), 200), (sha(b"others"), 400)] {
            let mut client = Raw::connect(addr).await;
            let request = format!(
                "PUT /file?verify HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Digest\r\n\r\n\
                 a\r\nsome bytes\r\n0\r\nContent-Digest: {digest}\r\n\r\n"
            );
            client.send(request).await;
            let head = client.head().await;
            let text = String::from_utf8(client.body(head.content_length()).await.unwrap()).unwrap();
            assert_eq!(head.status, status, "{text}");
            if status == 200 {
                assert_eq!(text, format!("10 10 {} true", hex(b"some bytes")));
                std::fs::remove_file(dir.path().join("file")).unwrap();
            }
            only(dir.path(), &[]).await;
        }
    });
}

#[test]
fn a_response_is_verified_as_well() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let response = hyper::Response::builder().header("Content-Digest", sha(b"bytes"));
        let (head, body) = response.body(Full::new(Bytes::from("bytes")).boxed()).unwrap().into_parts();
        let saved = Save::new(dir.path().join("file")).verify(&head.headers).run(body).await.unwrap();
        assert!(saved.verified);
    });
}

/// A body that promises a length, and may have trailers as in HTTP/2, or fewer bytes.
struct Promised {
    frames: VecDeque<Frame<Bytes>>,
    len: u64,
}

impl Body for Promised {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.frames.pop_front().map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

#[test]
fn trailers_of_a_body_of_known_length_are_checked() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes = Bytes::from(noise(JOB + 1));
        for (digest, right) in [(sha(&bytes), true), (sha(b"other"), false)] {
            let trailers = headers(&[("content-digest", digest)]);
            let frames = VecDeque::from([Frame::data(bytes.clone()), Frame::trailers(trailers)]);
            let body = Promised { frames, len: bytes.len() as u64 };
            let saved = Save::new(&path).durability(Durability::None).verify(&HeaderMap::new()).run(body).await;
            match saved {
                Ok(saved) => assert!(right && saved.verified),
                Err(e) => assert!(!right && e.is_digest_mismatch(), "{e}"),
            }
        }
    });
}

#[test]
fn a_short_body_with_a_wrong_digest_leaves_the_file_as_it_was() {
    on_both(|| async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let frames = VecDeque::from([Frame::data(Bytes::from(noise(2 * JOB)))]);
        let save = Save::new(&path).continue_at(6).verify(&headers(&[("content-digest", sha(b"other"))]));
        let error = save.run(Promised { frames, len: 4 << 20 }).await.unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"before", "{error}");
    });
}
