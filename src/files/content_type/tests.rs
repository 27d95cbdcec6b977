//! Unit tests of `content_type`.

use super::*;

#[test]
fn extensions_have_the_types_that_browsers_need() {
    let mut types = ContentTypes::default();
    for (name, expected) in [
        ("a.ts", "text/typescript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.wasm", "application/wasm"),
        ("a.jsonl", "application/jsonl"),
        ("a.json", "application/json"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.HTML", "text/html; charset=utf-8"),
        ("a.TS", "text/typescript; charset=utf-8"),
        ("a.svg", "image/svg+xml"),
        ("a.js.map", "application/json"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.woff2", "font/woff2"),
        ("a.tar.gz", "application/gzip"),
        ("a", "application/octet-stream"),
        ("a.", "application/octet-stream"),
        (".html", "application/octet-stream"),
        ("a.unheard-of", "application/octet-stream"),
    ] {
        assert_eq!(types.of(Path::new(name)), expected, "{name}");
    }
    types.set("TS", HeaderValue::from_static("video/mp2t"));
    types.set("", HeaderValue::from_static("application/json"));
    assert_eq!(types.of(Path::new("seg.ts")), "video/mp2t");
    assert_eq!(types.of(Path::new("apple-app-site-association")), "application/json");
    assert!(OWN.is_sorted());
}

#[test]
fn a_dot_in_a_name_makes_no_script() {
    let types = ContentTypes::default();
    for (name, expected) in [
        ("app.js", true),
        ("logo.PNG", true),
        ("about.html", false),
        ("john.doe", false),
        ("v1.2", false),
        ("users", false),
        (".js", false),
    ] {
        assert_eq!(types.is_subresource(Path::new(name)), expected, "{name}");
    }
}
