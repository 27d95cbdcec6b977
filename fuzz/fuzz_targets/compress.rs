//! Responses and `Accept-Encoding` of any kind through `CompressLayer`, and `body::Compress` alone: what a client decodes is
//! what the service has sent, at any time.
#![no_main]

use std::convert::Infallible;
use std::io::Read;

use arbitrary::Arbitrary;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use libfuzzer_sys::fuzz_target;
use millstream::middleware::CompressLayer;
use millstream_fuzz::{AnyBody, BoxError, boxed, run};
use tower::{Layer, ServiceExt, service_fn};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    accept: Vec<Accept<'a>>,
    is_head: bool,
    if_none_match: Option<&'a [u8]>,
    status: u8,
    fields: Vec<(u8, &'a [u8])>,
    kind: u8,
    frames: Vec<Part<'a>>,
    fails: bool,
    level: Option<(u8, u8)>,
}

#[derive(Arbitrary, Debug)]
enum Accept<'a> {
    Known(u8),
    Text(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
enum Part<'a> {
    Data(&'a [u8], u16),
    Pause,
    Trailers,
}

const ACCEPT: [&str; 6] = ["gzip", "br", "zstd", "gzip;q=0.5, br;q=0.2", "identity;q=0.1, *", "*;q=0"];
const FIELDS: [&str; 9] = [
    "etag",
    "vary",
    "cache-control",
    "content-range",
    "content-encoding",
    "content-digest",
    "accept-ranges",
    "content-length",
    "trailer",
];
const KINDS: [&str; 5] = ["text/plain", "text/event-stream", "application/json", "image/png", ""];

fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "gzip" => drop(flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).expect("gzip")),
        "br" => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain).expect("br")),
        "zstd" => plain = zstd::decode_all(bytes).expect("zstd"),
        other => panic!("the coding {other}"),
    }
    plain
}

/// Decodes what has come so far, of a stream that is not at its end.
fn begin(coding: &str, bytes: &[u8]) -> Vec<u8> {
    fn all(mut reader: impl Read) -> Vec<u8> {
        let (mut plain, mut buf) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = reader.read(&mut buf) {
            plain.extend_from_slice(&buf[..n]);
        }
        plain
    }
    match coding {
        "gzip" => all(flate2::read::MultiGzDecoder::new(bytes)),
        "br" => all(brotli::Decompressor::new(bytes, 4096)),
        "zstd" => all(zstd::Decoder::new(bytes).expect("a decoder")),
        other => panic!("the coding {other}"),
    }
}

fuzz_target!(|input: Input<'_>| {
    let mut layer = CompressLayer::new().min_size(10);
    if let Some((coding, level)) = input.level {
        use millstream::body::ContentCoding::{Brotli, Gzip, Zstd};
        // Higher levels take too long here.
        layer = layer.level([Brotli, Gzip, Zstd][usize::from(coding % 3)], u32::from(level % 8));
    }
    let mut head = Response::new(());
    *head.status_mut() = [StatusCode::OK, StatusCode::NOT_MODIFIED, StatusCode::PARTIAL_CONTENT, StatusCode::NOT_FOUND]
        [usize::from(input.status % 4)];
    for (name, value) in input.fields.iter().take(10) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            head.headers_mut().append(HeaderName::from_static(FIELDS[usize::from(*name) % FIELDS.len()]), value);
        }
    }
    let kind = KINDS[usize::from(input.kind) % KINDS.len()];
    if !kind.is_empty() {
        head.headers_mut().insert("content-type", HeaderValue::from_static(kind));
    }
    let mut plain = Vec::new();
    let mut frames: Vec<Option<Result<Frame<Bytes>, BoxError>>> = Vec::new();
    for part in input.frames.iter().take(30) {
        match part {
            Part::Data(data, times) => {
                let data = data.repeat(usize::from(times % 100) + 1);
                plain.extend_from_slice(&data);
                frames.push(Some(Ok(Frame::data(data.into()))));
            }
            Part::Pause => frames.push(None),
            Part::Trailers => {
                let trailers = std::iter::once((http::header::ETAG, HeaderValue::from_static("\"t\""))).collect();
                frames.push(Some(Ok(Frame::trailers(trailers))));
                break;
            }
        }
    }
    let has_trailers = input.frames.iter().take(30).any(|part| matches!(part, Part::Trailers));
    // Nothing follows the trailers.
    let fails = input.fails && !has_trailers;
    if fails {
        frames.push(Some(Err("the service has failed".into())));
    }
    let service = {
        let head = head.clone();
        service_fn(move |_: Request<()>| {
            // A pause is a poll that finds nothing.
            let frames = stream::unfold(std::mem::take(&mut frames).into_iter(), |mut frames| async move {
                loop {
                    match frames.next()? {
                        Some(frame) => return Some((frame, frames)),
                        None => tokio::task::yield_now().await,
                    }
                }
            });
            let answer: Response<AnyBody> = head.clone().map(|()| boxed(StreamBody::new(Box::pin(frames))));
            async { Ok::<_, Infallible>(answer) }
        })
    };
    let mut request = Request::new(());
    if input.is_head {
        *request.method_mut() = Method::HEAD;
    }
    for accept in input.accept.iter().take(5) {
        let value = match accept {
            Accept::Known(n) => ACCEPT[usize::from(*n) % ACCEPT.len()].as_bytes(),
            Accept::Text(text) => text,
        };
        if let Ok(value) = HeaderValue::from_bytes(value) {
            request.headers_mut().append("accept-encoding", value);
        }
    }
    if let Some(value) = input.if_none_match.and_then(|value| HeaderValue::from_bytes(value).ok()) {
        request.headers_mut().insert("if-none-match", value);
    }
    let (parts, bytes, trailers, failed) = run(async {
        let Ok(response) = layer.layer(service).oneshot(request).await;
        let (parts, mut body) = response.into_parts();
        let (mut bytes, mut trailers, mut failed) = (Vec::new(), false, false);
        while let Some(frame) = body.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => bytes.extend_from_slice(&data),
                Ok(Err(frame)) => trailers |= frame.is_trailers(),
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        (parts, bytes, trailers, failed)
    });
    assert_eq!(parts.status, head.status());
    assert_eq!(failed, fails);
    assert!(failed || trailers == has_trailers);
    let coding = parts.headers.get("content-encoding").and_then(|coding| coding.to_str().ok());
    let is_changed = parts.headers.get("content-encoding") != head.headers().get("content-encoding");
    match coding.filter(|_| is_changed) {
        Some(coding) => {
            assert!(!parts.headers.contains_key("content-length") && !parts.headers.contains_key("accept-ranges"));
            assert!(parts.headers.get_all("etag").iter().all(|tag| !tag.as_bytes().starts_with(b"\"")), "{parts:?}");
            assert!(parts.headers.contains_key("vary"));
            if failed {
                assert!(plain.starts_with(&begin(coding, &bytes)));
            } else if !bytes.is_empty() || !input.is_head {
                assert!(decode(coding, &bytes) == plain, "{coding}");
            }
        }
        None => {
            assert!(bytes == plain || failed && plain.starts_with(&bytes));
            assert_eq!(parts.headers.get("content-length"), head.headers().get("content-length"));
        }
    }
});
