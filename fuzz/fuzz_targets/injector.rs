//! A relayed message, cut anywhere, through `relay::Injector`: the same bytes with the lines at one place, which a plain
//! reading of the whole message finds too.
#![no_main]

use bytes::Buf;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use millstream_proxy::{InjectError, Injector};
use millstream_fuzz::pieces;

const LINES: &[u8] = b"via: 1.1 mill\r\nx-second: 2\r\n";
const LIMIT: usize = 200;

/// Returns where the lines belong: before the empty line of the first head that is not that of an interim response.
/// `None` if there is no such line.
fn place(message: &[u8]) -> Result<Option<usize>, InjectError> {
    let mut at = 0;
    loop {
        // A head, with the empty lines before it.
        let begin = at;
        let mut start: Option<&[u8]> = None;
        let end = loop {
            let line = at;
            let lf = message[at..].iter().position(|&b| b == b'\n').map(|lf| at + lf);
            let text = &message[line..lf.unwrap_or(message.len())];
            let cr = text.iter().position(|&b| b == b'\r').filter(|&cr| cr + 1 < text.len());
            // What comes first: a byte over the limit, or a byte behind a lone CR.
            if let Some(cr) = cr {
                return match line + cr + 1 - begin >= LIMIT {
                    true => Err(too_large()),
                    false => Err(InjectError::BareCr),
                };
            }
            let last = lf.map_or(message.len(), |lf| lf + 1);
            if last - begin > LIMIT {
                return Err(too_large());
            }
            let Some(lf) = lf else { return Ok(None) };
            at = lf + 1;
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            match start {
                None if text.is_empty() => {}
                None => start = Some(&message[line..]),
                Some(_) if text.is_empty() => break line,
                Some(_) => {}
            }
        };
        if !is_interim(start.unwrap_or_default()) {
            return Ok(Some(end));
        }
    }
}

fn too_large() -> InjectError {
    let mut injector = Injector::new(&HeaderMap::new()).unwrap().limit(0);
    let error = injector.feed(b"x").unwrap_err();
    assert!(matches!(error, InjectError::TooLarge { limit: 0, .. }));
    error
}

fn is_interim(start: &[u8]) -> bool {
    let Some(start) = start.get(..12) else { return false };
    let Ok(start) = std::str::from_utf8(start) else { return false };
    let Some((version, status)) = start.split_once(' ') else { return false };
    let digit = |text: &str| text.len() == 1 && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = version.strip_prefix("HTTP/").and_then(|version| version.split_once('.'));
    numbers.is_some_and(|(major, minor)| digit(major) && digit(minor))
        && status.len() == 3
        && status.bytes().all(|b| b.is_ascii_digit())
        && status.starts_with('1')
        && status != "101"
}

fuzz_target!(|data: &[u8]| {
    let pieces = pieces(data);
    let message = pieces.concat();
    let fields = HeaderMap::from_iter([
        ("via".parse().unwrap(), HeaderValue::from_static("1.1 mill")),
        ("x-second".parse().unwrap(), HeaderValue::from_static("2")),
    ]);
    let mut injector = Injector::new(&fields).unwrap().limit(LIMIT);
    let mut sent = Vec::new();
    let mut taken = 0;
    let mut failed = None;
    for piece in &pieces {
        let held = injector.held();
        match injector.feed(piece) {
            Ok(mut output) => {
                let (len, before) = (output.remaining(), sent.len());
                while output.has_remaining() {
                    let n = output.chunk().len();
                    sent.extend_from_slice(output.chunk());
                    output.advance(n);
                }
                assert_eq!(sent.len() - before, len);
                taken += piece.len();
            }
            Err(e) => {
                assert_eq!(injector.held(), held, "the state has changed");
                failed = Some(e);
                break;
            }
        }
    }
    let place = place(&message);
    // The reference has one answer for all cuts.
    match (failed, place) {
        (Some(InjectError::BareCr), Err(InjectError::BareCr)) => {}
        (Some(InjectError::TooLarge { limit: LIMIT, .. }), Err(InjectError::TooLarge { .. })) => {}
        (None, Ok(Some(place))) => {
            assert!(injector.is_done());
            assert_eq!(sent, [&message[..place], LINES, &message[place..]].concat());
            assert_eq!(injector.finish(), Ok(()));
        }
        (None, Ok(None)) => {
            assert!(!injector.is_done());
            sent.extend_from_slice(injector.held());
            assert_eq!(sent, message);
            if message.iter().all(|b| matches!(b, b'\r' | b'\n')) {
                assert_eq!(injector.finish(), Ok(()));
            }
        }
        (failed, place) => panic!("{failed:?} instead of {place:?}"),
    }
    if failed.is_some() {
        sent.extend_from_slice(injector.held());
        assert_eq!(sent, message[..taken], "bytes of the refused piece");
    }
});
