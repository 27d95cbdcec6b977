//! The end of the bytes, for all short streams and all their cuts, beside the whole text.

use super::*;

/// Returns whether a stream that has begun with `text` is between two events: it ends with an empty line.
fn is_between(text: &[u8]) -> bool {
    let text = text.strip_prefix(BOM).unwrap_or(text);
    let lines = String::from_utf8_lossy(text).replace("\r\n", "\n").replace('\r', "\n");
    ["", "\n"].contains(&&*lines) || lines.ends_with("\n\n")
}

/// Returns all streams of up to `len` bytes.
fn streams(len: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..len {
        let to = all.len();
        for at in from..to {
            all.extend(b"a\n\r".iter().map(|byte| [&all[at][..], &[*byte]].concat()).collect::<Vec<_>>());
        }
        from = to;
    }
    all
}

/// Calls `check` with each way to cut `stream` into pieces that are not empty.
fn cuts(stream: &[u8], mut check: impl FnMut(Vec<&[u8]>)) {
    for cuts in 0..1 << stream.len().saturating_sub(1) {
        let mut pieces = Vec::new();
        let mut from = 0;
        for at in 1..=stream.len() {
            if at == stream.len() || cuts >> (at - 1) & 1 == 1 {
                pieces.push(&stream[from..at]);
                from = at;
            }
        }
        check(pieces);
    }
}

#[test]
fn a_boundary_is_an_empty_line_for_all_cuts() {
    for stream in streams(7) {
        for start in [&b""[..], BOM] {
            cuts(&stream, |pieces| {
                let mut boundary = Boundary::default();
                assert_eq!(boundary.pass(Bytes::copy_from_slice(start)), start);
                let mut seen = start.to_vec();
                assert!(boundary.is_between());
                for piece in &pieces {
                    assert_eq!(boundary.pass(Bytes::copy_from_slice(piece)), piece, "unchanged");
                    seen.extend_from_slice(piece);
                    assert_eq!(boundary.is_between(), is_between(&seen), "{pieces:?} to {seen:?}");
                }
            });
        }
    }
}

#[test]
fn a_byte_order_mark_leaves_only_after_a_comment() {
    for text in
        ["", "\u{feff}", "\u{feff}a\n\n", "\u{feff}\u{feff}a", "\u{feff}\n", "\u{fec1}a", "\u{e000}", "a\u{feff}"]
    {
        for comes_first in [false, true] {
            cuts(text.as_bytes(), |pieces| {
                let mut boundary = Boundary::default();
                if comes_first {
                    boundary.note_comment();
                }
                let mut out = Vec::new();
                for piece in &pieces {
                    out.extend_from_slice(&boundary.pass(Bytes::copy_from_slice(piece)));
                }
                let expected = if comes_first { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
                assert_eq!(out, expected.as_bytes(), "{pieces:?}");
                assert_eq!(boundary.is_between(), is_between(text.as_bytes()), "{pieces:?}");
            });
        }
    }
}

#[test]
fn within_a_byte_order_mark_there_is_no_boundary() {
    for len in 1..BOM.len() {
        let mut boundary = Boundary::default();
        boundary.pass(Bytes::from_static(&BOM[..len]));
        assert!(!boundary.is_between(), "{len}");
    }
}

#[test]
fn a_comment_after_the_first_byte_leaves_the_byte_order_mark() {
    let mut boundary = Boundary::default();
    boundary.pass(Bytes::from_static(b"\n"));
    boundary.note_comment();
    assert_eq!(boundary.pass(Bytes::from_static(BOM)), BOM, "it is part of a line");
}
