//! Unit tests of `path`.

use super::*;

#[test]
fn names_are_decoded_once() {
    for (path, expected) in [
        ("/", Some("")),
        ("/a.txt", Some("a.txt")),
        ("/a/b/c.txt", Some("a/b/c.txt")),
        ("/docs/", Some("docs/")),
        ("/a%20b", Some("a b")),
        ("/100%25", Some("100%")),
        ("/%252e%252e/x", Some("%2e%2e/x")),
        ("/a..b/...c", None),
        ("/a..b/c...", Some("a..b/c...")),
        ("/a\\b", Some("a\\b")),
        ("", None),
        ("*", None),
        ("a", None),
        ("//", Some("")),
        ("//etc/passwd", Some("etc/passwd")),
        ("/a//b", Some("a/b")),
        ("/a//", Some("a/")),
        ("/.", Some("")),
        ("/./", Some("")),
        ("/./a", Some("a")),
        ("/a/.", Some("a")),
        ("/a/./", Some("a/")),
        ("/.//.//a/.//b/./", Some("a/b/")),
        ("/a/./x", Some("a/x")),
        ("/%2e", Some("")),
        ("/%2e/a", Some("a")),
        ("//..", None),
        ("/.//../x", None),
        ("/..", None),
        ("/../x", None),
        ("/a/../x", None),
        ("/%2e%2e/x", None),
        ("/.%2E/x", None),
        ("/a%2fb", None),
        ("/a%2Fb", None),
        ("/..%2f..%2fetc", None),
        ("/a%00b", None),
        ("/.git/config", None),
        ("/a/.env", None),
        ("/%2egit/config", None),
        ("/a%", None),
        ("/a%2", None),
        ("/a%zz", None),
        ("/a%+1", None),
    ] {
        assert_eq!(name(path, Dots::None).as_deref(), expected.map(str::as_bytes), "{path}");
    }
}

#[test]
fn hidden_names_are_shown_on_request_but_never_dots() {
    assert_eq!(name("/.well-known/x", Dots::All).as_deref(), Some(&b".well-known/x"[..]));
    assert_eq!(name("/./.a/.", Dots::All).as_deref(), Some(&b".a"[..]));
    assert_eq!(name("/...", Dots::All).as_deref(), Some(&b"..."[..]));
    for path in ["/..", "/./..", "/a/..", "/%2e%2E/x"] {
        assert_eq!(name(path, Dots::All), None, "{path}");
    }
}

#[test]
fn well_known_names_are_shown_at_the_front_only() {
    for (path, expected) in [
        ("/.well-known/acme-challenge/x", Some(".well-known/acme-challenge/x")),
        ("/.%77ell-known/x", Some(".well-known/x")),
        ("//./.well-known/", Some(".well-known/")),
        ("/.well-known", Some(".well-known")),
        ("/.well-known/.git", None),
        ("/a/.well-known/x", None),
        ("/.well-known/../.git", None),
        ("/.well-knownx", None),
        ("/.Well-Known/x", None),
        ("/.git", None),
    ] {
        assert_eq!(name(path, Dots::WellKnown).as_deref(), expected.map(str::as_bytes), "{path}");
    }
}

#[test]
fn a_path_that_is_its_name_is_not_copied() {
    for (path, borrowed) in
        [("/", true), ("/a/b", true), ("/a/", true), ("//a", false), ("/a/./b", false), ("/%61", false)]
    {
        assert_eq!(matches!(name(path, Dots::None), Some(Cow::Borrowed(_))), borrowed, "{path}");
    }
}

#[test]
fn bytes_that_are_no_text_are_names_too() {
    assert_eq!(name("/%ff%fe", Dots::None).as_deref(), Some(&b"\xff\xfe"[..]));
    assert!(name(&format!("/{}", "a".repeat(PATH_MAX + 1)), Dots::None).is_none());
}

#[test]
fn redirects_are_relative() {
    for (uri, expected) in [
        ("/docs", "./docs/"),
        ("/a/b%20c", "./b%20c/"),
        ("/a/b?x=1&y", "./b/?x=1&y"),
        ("//evil.example", "./evil.example/"),
        ("http://host/docs", "./docs/"),
        ("/docs/.", "././"),
    ] {
        assert_eq!(slashed(&uri.parse().unwrap()).unwrap(), expected, "{uri}");
    }
}

proptest::proptest! {
    #[test]
    fn no_path_leads_out(path in "[/.%2eEfF0a\\\\]{0,24}") {
        let path = format!("/{path}");
        for dots in [Dots::None, Dots::WellKnown, Dots::All] {
            if let Some(name) = name(&path, dots) {
                let mut segments: Vec<&[u8]> = name.split(|&b| b == b'/').collect();
                if segments.last() == Some(&&b""[..]) {
                    segments.pop();
                }
                for segment in segments {
                    proptest::prop_assert!(!name.starts_with(b"/"));
                    proptest::prop_assert!(!segment.is_empty() && segment != b"." && segment != b"..");
                    proptest::prop_assert!(!segment.contains(&0) && (dots == Dots::All || segment[0] != b'.'));
                }
            }
        }
    }
}

#[test]
fn windows_has_names_that_lead_elsewhere() {
    for name in ["a~b", "~", "a.txt", "con-1", "COM", "COM10", "lpt.txt", "a b", "\u{fc}ber.html"] {
        assert!(is_windows_name(name.as_bytes()), "{name}");
    }
    for name in [
        "GIT~1",
        "file~12.txt",
        "a:b",
        "a\\b",
        "..\\b",
        "nul",
        "NUL.txt",
        "con ",
        "aux.tar.gz",
        "com1",
        "LPT\u{b9}.txt",
        "a.",
        "a ",
        "a*",
    ] {
        assert!(!is_windows_name(name.as_bytes()), "{name}");
    }
    assert!(!is_windows_name(b"\xff"));
}
