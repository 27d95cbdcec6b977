//! The lines of code of each package, and the public items of the root.

use std::collections::BTreeSet;

use super::lex::{code, line_of};

/// Code lines of each package: no tests, no comments, no blank lines. A change that needs more raises the number in the
/// same commit and says why.
pub(crate) const LINES: &[(&str, usize)] = &[
    ("src", 39_844),
    ("crates/frames/src", 915),
    ("crates/layers/src", 2_095),
    ("crates/proxy/src", 3_299),
    ("crates/proxy-protocol/src", 762),
    ("crates/redis/src", 1_767),
    ("crates/resumable/src", 2_319),
    ("crates/topics/src", 1_430),
    ("crates/websocket/src", 644),
];

/// Lines of `tests/api.txt`.
pub(crate) const PUBLIC_ITEMS: usize = 1_979;

/// Returns the code lines of a package. `files` are its paths and texts.
pub(crate) fn lines(files: &[(String, String)]) -> usize {
    let without: BTreeSet<String> = files.iter().flat_map(|(path, text)| test_modules(path, &code(text))).collect();
    let is_test = |path: &str| {
        without.iter().any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")))
    };
    files.iter().filter(|(path, _)| !is_test(path)).map(|(_, text)| code_lines(&code(text))).sum()
}

/// Returns the parts of `code` for tests, from their attribute to their end.
fn for_tests(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(").map(|at| from + at) {
        let close = code[at..].find(")]").map_or(code.len(), |close| at + close + 2);
        from = close;
        let condition = &code[at..close];
        if condition.starts_with("#[cfg(test)]") || condition.starts_with("#[cfg(all(test,") {
            from = item_end(code, close);
            found.push((at, from));
        }
    }
    found
}

/// Returns the end of the item that begins at `from`: a semicolon or comma outside of brackets, or a closing brace.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                // Also the end of the block around a last field or statement.
                if depth < 0 {
                    return from + at;
                }
                if depth == 0 && c == '}' {
                    return from + at + 1;
                }
            }
            ';' | ',' if depth == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the paths of modules for tests that are in files of their own, without `.rs`.
fn test_modules(path: &str, code: &str) -> Vec<String> {
    let dir =
        path.strip_suffix("/mod.rs").or(path.strip_suffix("/lib.rs")).or(path.strip_suffix(".rs")).unwrap_or(path);
    let name = |(start, end): (usize, usize)| {
        let item = code[start..end].rsplit(']').next()?.trim().strip_suffix(';')?;
        Some(format!("{dir}/{}", item.rsplit_once("mod ")?.1.trim()))
    };
    for_tests(code).into_iter().filter_map(name).collect()
}

fn code_lines(code: &str) -> usize {
    let tests: BTreeSet<usize> = for_tests(code)
        .into_iter()
        .flat_map(|(start, end)| line_of(code, start)..=line_of(code, end.saturating_sub(1)))
        .collect();
    code.lines().enumerate().filter(|(n, line)| !line.trim().is_empty() && !tests.contains(&(n + 1))).count()
}

#[test]
fn only_code_counts() {
    let text = "//! A.\n\nuse a::b;\n\n/// B.\nfn f() {\n    // C.\n    g();\n    #[cfg(test)]\n    h(1,\n        2);\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n#[cfg(unix)]\nmod unix;\n#[cfg(all(test, unix))]\npub(crate) mod fake;\n";
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    assert_eq!(lines(&[file("src/a/mod.rs", text)]), 6);
    assert_eq!(lines(&[file("src/a/mod.rs", text), file("src/a/unix.rs", "fn f() {}\n")]), 7);
    assert_eq!(
        lines(&[file("src/a.rs", text), file("src/a/fake.rs", "fn f() {}\n"), file("src/a/fake/b.rs", "x!();")]),
        6
    );
}
