//! Unit tests of `cache_control`.

use super::*;

#[test]
fn hashes_are_told_from_words_and_dates() {
    let content_type = HeaderValue::from_static("text/javascript");
    for (name, expected) in [
        ("app.3f9a1c2b.js", true),
        ("main.8e0d62a1b2c3.chunk.css", true),
        ("index-D4k9x_Qa.css", true),
        ("index-B-3x9_Qa.js", true),
        ("chunk-7QWX2ABC.js", true),
        ("assets/logo.D4k9xZQa.svg", true),
        ("app.3f9a1c2b.js.map", true),
        ("font_0123abcd.woff2", true),
        ("app.js", false),
        ("3f9a1c2b.js", false),
        ("D4k9x_Qa.js", false),
        ("report-20240101.pdf", false),
        ("report-2024q3final.pdf", false),
        ("jquery.minified.js", false),
        ("page-overview.js", false),
        ("page-Overview.js", false),
        ("jquery-3.7.1.min.js", false),
        ("app.3f9a1c2.js", false),
        ("app.3f9a1c2b", false),
        ("README", false),
        ("", false),
    ] {
        let asset = Asset { path: Path::new(name), content_type: &content_type };
        assert_eq!(asset.has_content_hash(), expected, "{name}");
    }
}

#[test]
fn pages_are_validated_even_if_their_name_has_a_hash() {
    let rule = |name: &str, content_type| {
        let content_type = HeaderValue::from_static(content_type);
        cache_by_name(&Asset { path: Path::new(name), content_type: &content_type })
    };
    assert_eq!(rule("a.3f9a1c2b.html", "text/html; charset=utf-8").unwrap(), "no-cache");
    assert_eq!(rule("a.3f9a1c2b.css", "text/css").unwrap(), "public, max-age=31536000, immutable");
    assert_eq!(rule("a.css", "text/css"), None);
}
