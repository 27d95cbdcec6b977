//! Unit tests of `page`.

use super::*;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

#[test]
fn the_policy_allows_the_style_of_the_page() {
    let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    assert!(POLICY.contains(&format!("'sha256-{hash}'")), "the hash of the style is {hash}");
}

#[test]
fn sizes_have_three_digits() {
    for (bytes, expected) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10 << 10, "10.0 KiB"),
        (12_345_678, "11.8 MiB"),
        (999 << 20, "999 MiB"),
        ((1 << 20) - 1, "1.00 MiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(size(bytes), expected);
    }
}

#[test]
fn names_cannot_leave_their_place() {
    let mut rows = String::new();
    let facts = Facts { size: 1, modified: None };
    for name in ["<script>alert(1)</script>", "a\" onclick='x'", "javascript:alert(1)", "a&b?c#d%e"] {
        row(&mut rows, name.as_bytes(), false, facts);
    }
    assert!(!rows.contains("<script") && !rows.contains("onclick='") && !rows.contains("\"javascript:"), "{rows}");
    assert!(rows.contains("href=\"./javascript%3Aalert%281%29\">javascript:alert(1)</a>"), "{rows}");
    assert!(rows.contains("href=\"./a%26b%3Fc%23d%25e\">a&amp;b?c#d%e</a>"), "{rows}");
}
