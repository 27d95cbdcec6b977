//! The lines of code of each package, and the public items of the root.

/// Code lines of each package: no files of tests, no comments, no blank lines. A change that needs more raises the number
/// in the same commit and says why.
pub(crate) const LINES: &[(&str, usize)] = &[
    ("src", 39_556),
    ("crates/frames/src", 938),
    ("crates/handoff/src", 1_727),
    ("crates/layers/src", 2_175),
    ("crates/proxy/src", 3_376),
    ("crates/proxy-protocol/src", 778),
    ("crates/redis/src", 1_969),
    ("crates/resumable/src", 2_341),
    ("crates/topics/src", 1_608),
    ("crates/websocket/src", 659),
];

/// Lines of `tests/api.txt`.
pub(crate) const PUBLIC_ITEMS: usize = 2_010;

/// Returns the code lines of a package. `files` are its paths and texts.
pub(crate) fn lines(files: &[(String, String)]) -> usize {
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    files.iter().filter(|(path, _)| !is_test(path)).map(|(_, text)| text.lines().filter(is_code).count()).sum()
}

#[test]
fn only_code_counts() {
    let text = "//! A.\n\nuse a::b;\n\n/// B.\nfn f() {\n    // C.\n    g();\n}\n";
    let file = |path: &str| (path.to_owned(), text.to_owned());
    assert_eq!(lines(&[file("src/a/mod.rs"), file("src/b.rs")]), 8);
    assert_eq!(lines(&[file("src/a.rs"), file("src/a/tests.rs"), file("src/a/tests/b.rs")]), 4);
}
