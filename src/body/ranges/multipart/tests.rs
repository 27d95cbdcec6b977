//! Unit tests of `multipart`.

use super::*;
use proptest::prelude::*;

fn render(parts: &[Part], file: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Text(text) => all.extend_from_slice(text),
            Part::Range(range) => all.extend_from_slice(&file[range.start as usize..range.end as usize]),
        }
    }
    all
}

#[test]
fn the_layout_is_that_of_the_rfc() {
    let parts = layout(&[0..2, 7..10], 10, &HeaderValue::from_static("text/plain"), "B");
    let expected = "--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\n01\
            \r\n--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-9/10\r\n\r\n789\r\n--B--\r\n";
    assert_eq!(String::from_utf8(render(&parts, b"0123456789")).unwrap(), expected);
}

#[test]
fn boundaries_differ() {
    let (a, b) = (boundary(), boundary());
    assert_ne!(a, b);
    assert_eq!(a.len(), 32);
}

proptest! {
    #[test]
    fn parts_can_be_taken_apart_again(cuts in proptest::collection::vec((0u64..1000, 1u64..1000), 2..16)) {
        let file: Vec<u8> = (0..2000u32).map(|i| (i % 251) as u8).collect();
        let ranges: Vec<_> = cuts.iter().map(|&(from, len)| from..from + len).collect();
        let boundary = boundary();
        let all = render(&layout(&ranges, 2000, &HeaderValue::from_static("a/b"), &boundary), &file);
        // Parses like a client: each part starts after a blank line and has the length in its header.
        let mut rest = &all[..];
        for range in &ranges {
            let head_end = rest.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
            let head = std::str::from_utf8(&rest[..head_end]).unwrap();
            let (separator, field) =
                (format!("--{boundary}\r\n"), format!("bytes {}-{}/2000\r\n", range.start, range.end - 1));
            prop_assert!(head.trim_start().starts_with(&separator));
            prop_assert!(head.contains(&field));
            rest = &rest[head_end..];
            let len = (range.end - range.start) as usize;
            prop_assert!(rest[..len] == file[range.start as usize..range.end as usize]);
            rest = &rest[len..];
        }
        let end = format!("\r\n--{boundary}--\r\n");
        prop_assert_eq!(rest, end.as_bytes());
    }
}
