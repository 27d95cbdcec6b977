//! The head, the body and the trailers of an upload against `body::Save`: the file has the bytes of the body if they are what
//! the fields announce, and is the old one otherwise.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use http_body_util::StreamBody;
use libfuzzer_sys::fuzz_target;
use md5::Md5;
use millstream::body::Save;
use millstream::fs::Durability;
use millstream_fuzz::{BoxError, run};
use sha2::{Digest, Sha256};

static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| tempfile::Builder::new().prefix("millstream-fuzz-").tempdir().unwrap().keep());

const OLD: &[u8] = b"the old file";

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    fields: Vec<Field<'a>>,
    trailers: Vec<Field<'a>>,
    pieces: Vec<(&'a [u8], u16)>,
    /// The length that the body tells before it comes, and how it deviates from it.
    length: Option<i8>,
    fails: bool,
    max: Option<u16>,
    place: Place,
}

#[derive(Arbitrary, Debug, PartialEq)]
enum Place {
    Replace,
    New { exists: bool },
    End { exists: bool, offset: u8 },
}

#[derive(Arbitrary, Debug)]
enum Field<'a> {
    /// The digest of the body, or of another one.
    Digest {
        name: u8,
        right: bool,
        others: bool,
    },
    Text {
        name: u8,
        value: &'a [u8],
    },
}

const NAMES: [&str; 5] = ["content-digest", "repr-digest", "content-md5", "content-range", "trailer"];

fn headers(fields: &[Field<'_>], body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for field in fields.iter().take(10) {
        let (name, value) = match field {
            Field::Digest { name, right, others } => {
                let name = NAMES[usize::from(name % 3)];
                let body = if *right { body } else { b"another body" };
                let value = match name {
                    "content-md5" => base64(&Md5::digest(body)).trim_matches(':').to_owned(),
                    _ => {
                        format!("{}sha-256={}", if *others { "unixsum=7, " } else { "" }, base64(&Sha256::digest(body)))
                    }
                };
                (name, value.into_bytes())
            }
            Field::Text { name, value } => (NAMES[usize::from(*name) % NAMES.len()], value.to_vec()),
        };
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            headers.append(name, value);
        }
    }
    headers
}

/// Returns bytes as in a structured field, `:…:`.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from(":");
    for three in bytes.chunks(3) {
        let bits = u32::from(three[0]) << 16
            | u32::from(*three.get(1).unwrap_or(&0)) << 8
            | u32::from(*three.get(2).unwrap_or(&0));
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n)) as usize & 63] as char;
            text.push(if n > three.len() { '=' } else { digit });
        }
    }
    text + ":"
}

/// A body that tells a length of its own.
struct Told<B>(B, Option<u64>);

impl<B: Body + Unpin> Body for Told<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.1.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Whether all digests of these fields are right: `None` if that cannot be told from the outside, because a value is
/// neither a digest made here nor absent.
fn digests(fields: &[Field<'_>], has_range: bool, whole: bool) -> Option<bool> {
    // Of a dictionary, in which the two fields with structure are, the last member of a name counts.
    let (mut last, mut all_right) = ([true; 2], true);
    for field in fields.iter().take(10) {
        match field {
            Field::Digest { name, right, .. } => match name % 3 {
                0 => last[0] = *right,
                1 => last[1] = *right || has_range || !whole,
                _ => all_right &= *right,
            },
            Field::Text { name, .. } if usize::from(*name) % NAMES.len() < 3 => return None,
            Field::Text { .. } => {}
        }
    }
    Some(all_right && last == [true; 2])
}

fuzz_target!(|input: Input<'_>| {
    let pieces: Vec<Bytes> =
        input.pieces.iter().take(8).map(|(piece, times)| piece.repeat(usize::from(times % 2000) + 1).into()).collect();
    let body = pieces.concat();
    if body.len() > 2 << 20 {
        return;
    }
    let (mut fields, trailers) = (headers(&input.fields, &body), headers(&input.trailers, &body));
    let path = DIR.join("upload");
    let exists = !matches!(input.place, Place::New { exists: false } | Place::End { exists: false, .. });
    let _ = fs::remove_file(&path);
    if exists {
        fs::write(&path, OLD).unwrap();
    }
    let length = input.length.map(|length| (body.len() as u64).saturating_add_signed(length.into()));
    if let Some(length) = length {
        fields.insert("content-length", length.into());
    }
    let mut frames: Vec<Result<Frame<Bytes>, BoxError>> =
        pieces.into_iter().map(|piece| Ok(Frame::data(piece))).collect();
    if input.fails {
        frames.push(Err("the peer has left".into()));
    } else if !trailers.is_empty() {
        frames.push(Ok(Frame::trailers(trailers.clone())));
    }
    let mut save = Save::new(&path).durability(Durability::None).sha256().verify(&fields);
    let max = input.max.map(u64::from);
    if let Some(max) = max {
        save = save.max_len(max);
    }
    let mut offset = 0;
    match input.place {
        Place::Replace => {}
        Place::New { .. } => save = save.create_new(),
        Place::End { offset: n, .. } => {
            offset = u64::from(n);
            save = save.continue_at(offset);
        }
    }
    let saved = run(save.run(Told(StreamBody::new(stream::iter(frames)), length)));
    let now = fs::read(&path).ok();
    let old = exists.then_some(OLD);
    let context = || format!("{input:?}\n{saved:?}");
    let is_end = matches!(input.place, Place::End { .. });
    let refused = matches!(input.place, Place::New { exists: true })
        || is_end && offset != if exists { OLD.len() as u64 } else { 0 };
    let right = {
        let (in_head, in_trailers) = (fields.contains_key("content-range"), trailers.contains_key("content-range"));
        match (digests(&input.fields, in_head, !is_end), digests(&input.trailers, in_trailers, !is_end)) {
            (Some(one), Some(other)) => Some((one, other)),
            _ => None,
        }
    };
    match &saved {
        Ok(saved) => {
            assert!(!refused && !input.fails, "{}", context());
            let before = if is_end { old.unwrap_or_default() } else { b"" };
            assert!(now.as_deref() == Some(&[before, &body].concat()[..]), "{}", context());
            assert_eq!((saved.len, saved.file_len), (body.len() as u64, (before.len() + body.len()) as u64));
            assert_eq!(saved.sha256, Some(Sha256::digest(&body).into()));
            assert!(max.is_none_or(|max| saved.file_len <= max), "{}", context());
            // A Content-MD5 in the trailers counts only if it was announced.
            if let Some((head, _)) = right {
                assert!(head, "a wrong digest: {}", context());
            }
            let content_digest = |field: &Field<'_>| match field {
                Field::Digest { name, right, .. } if name % 3 == 0 => Some(*right),
                _ => None,
            };
            let last = input.trailers.iter().take(10).filter_map(content_digest).next_back();
            assert!(last != Some(false) || right.is_none(), "a wrong trailer: {}", context());
        }
        Err(_) => {
            let kept = now.as_deref();
            // What has arrived stays if the body fails.
            let is_part = is_end
                && kept.is_some_and(|kept| {
                    let before = old.unwrap_or_default();
                    kept.starts_with(before) && body.starts_with(&kept[before.len()..])
                });
            assert!(kept == old || is_part, "{}", context());
            let too_large = max.is_some_and(|max| offset + length.unwrap_or(0).max(body.len() as u64) > max);
            let lied = length.is_some_and(|length| length != body.len() as u64);
            assert!(
                refused || input.fails || too_large || lied || right != Some((true, true)),
                "nothing was wrong: {}",
                context()
            );
        }
    }
    let left: Vec<_> = fs::read_dir(&*DIR).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "upload"), "{left:?}");
});
