//! The tests that documents name, and the tables of docs/clauses.md and docs/assumptions.md.

use std::fs;
use std::path::{Path, PathBuf};

/// A row of a table, with the heading above it.
pub(crate) struct Row<'a> {
    heading: &'a str,
    cells: Vec<&'a str>,
}

/// The section of docs/clauses.md for requirements that are not met.
const DEVIATIONS: &str = "Known deviations";

const LEVELS: &[&str] = &["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"];

/// The consequence for a user when an assumption does not hold, as the last cell of its row begins.
const OUTCOMES: &[&str] = &["nothing", "slow", "late", "memory", "error", "closed", "cut", "wrong bytes", "hang"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap()
}

/// Returns the tests that a document names: the program, and the path of the test in it.
pub(crate) fn named_tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let named = quoted(text).filter_map(|quoted| quoted.split_once(' '));
    named.filter(|(_, test)| test.contains("::") && !test.contains(' ') && !test.ends_with("::NAME"))
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns whether a named test exists.
pub(crate) fn exists((program, test): (&str, &str)) -> bool {
    let (module, name) = test.rsplit_once("::").unwrap();
    let package = ["crates", "examples"].into_iter().find(|dir| root().join(dir).join(program).is_dir());
    let (dir, module) = match (program, package, module.strip_prefix("lib::")) {
        ("lib", ..) => ("src".to_owned(), module),
        (_, Some(package), Some(module)) => (format!("{package}/{program}/src"), module),
        // A crate beside this one has a program of its name.
        (_, Some("crates"), None) => (format!("crates/{program}/tests/{program}"), module),
        (_, Some(package), None) => (format!("{package}/{program}/tests"), module),
        (_, None, _) => (format!("tests/{program}"), module),
    };
    let path = format!("{dir}/{}", module.replace("::", "/"));
    // Unit tests are in the file of their module, or in one of their own.
    let module = path.strip_suffix("/tests").unwrap_or(&path);
    [format!("{path}.rs"), format!("{path}/mod.rs"), format!("{module}.rs"), format!("{module}/mod.rs")]
        .iter()
        .any(|file| fs::read_to_string(root().join(file)).is_ok_and(|text| text.contains(&format!("fn {name}("))))
}

/// Returns the rows of all tables, without their heads.
pub(crate) fn rows(text: &str) -> Vec<Row<'_>> {
    let (mut rows, mut heading, mut is_head) = (Vec::new(), "", true);
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|') else {
            (heading, is_head) = (line.strip_prefix("## ").unwrap_or(heading), true);
            continue;
        };
        if !is_head {
            rows.push(Row { heading, cells: row.trim_end_matches('|').trim().split(" | ").collect() });
        }
        // The line of dashes is the last one of a head.
        is_head &= !row.starts_with("---");
    }
    rows
}

/// Returns what is wrong with the rows of docs/clauses.md.
pub(crate) fn wrong_clauses(rows: &[Row<'_>]) -> Vec<String> {
    rows.iter().filter_map(|row| Some(format!("{}: {}", row.cells.join(" | "), wrong_clause(row)?))).collect()
}

fn wrong_clause(row: &Row<'_>) -> Option<String> {
    let [clause, level, _, answered_by, tests] = row.cells[..] else { return Some("not five cells".to_owned()) };
    if !is_clause(clause) {
        return Some("the clause is not `[§1.2](link to this section)`".to_owned());
    }
    if !LEVELS.contains(&level) {
        return Some(format!("the level is not one of {LEVELS:?}"));
    }
    let is_none = tests == "none";
    let names_only_tests =
        quoted(tests).all(|test| is_script(test) || named_tests(&format!("`{test}`")).next().is_some());
    if !is_none && (quoted(tests).next().is_none() || !names_only_tests) {
        return Some("the tests are neither `program path::name` nor `none`".to_owned());
    }
    if row.heading == DEVIATIONS {
        return None;
    }
    if let Some(module) = quoted(answered_by).find(|module| !is_module(module)) {
        return Some(format!("there is no module `{module}`"));
    }
    let is_ours = quoted(answered_by).next().is_some();
    (is_ours && is_none && level.starts_with("MUST")).then(|| format!("no test, and not in `{DEVIATIONS}`"))
}

/// Returns whether this is a link to the section that its text names.
fn is_clause(cell: &str) -> bool {
    let link = || cell.strip_prefix("[§")?.strip_suffix(')')?.split_once("](https://");
    let Some((section, link)) = link() else { return false };
    let is_number = |part: &str| part.parse::<u8>().is_ok_and(|number| number > 0 && part == number.to_string());
    let of_rfc = link.strip_prefix("www.rfc-editor.org/rfc/rfc").and_then(|link| link.split_once("#section-"));
    section.split('.').all(is_number)
        && (!link.contains("rfc-editor") || of_rfc.is_some_and(|(_, part)| part == section))
}

/// Returns whether a file of this name is a test of its own, as `.ci/h2spec`.
fn is_script(name: &str) -> bool {
    name.contains('/') && root().join(name).is_file()
}

/// Returns whether a module of this package exists, as `net/stream`, or one of another package, as `proxy/fields`.
fn is_module(name: &str) -> bool {
    let (package, rest) = name.split_once('/').unwrap_or((name, "lib"));
    let of = |dir: &str| PathBuf::from(dir).join(package).join("src").join(rest);
    [PathBuf::from("src").join(name), of("crates"), of("examples")].iter().any(|path| {
        let path = root().join(path);
        path.is_dir() || path.with_extension("rs").is_file()
    })
}

/// Returns what is wrong with the rows of docs/assumptions.md.
pub(crate) fn wrong_assumptions(rows: &[Row<'_>]) -> Vec<String> {
    let wrong = |row: &Row<'_>| {
        let [_, code, tests, outcome] = row.cells[..] else { return Some("not four cells".to_owned()) };
        if let Some(module) = quoted(code).find(|module| !is_module(module)) {
            return Some(format!("there is no module `{module}`"));
        }
        if named_tests(tests).next().is_none() {
            return Some("no test".to_owned());
        }
        let begins = |known: &&str| outcome.strip_prefix(*known).is_some_and(|rest| rest.starts_with(": "));
        (!OUTCOMES.iter().any(begins)).then(|| format!("the last cell begins with none of {OUTCOMES:?}"))
    };
    rows.iter().filter_map(|row| Some(format!("{}: {}", row.cells.join(" | "), wrong(row)?))).collect()
}

/// Tests of the rules: each finds its targets, and nothing else.
mod tests {
    use super::*;

    const TEST: &str = "`tidy documents::tests::rows_of_clauses_are_checked`";
    const LINK: &str = "[§5.1](https://www.rfc-editor.org/rfc/rfc9112#section-5.1)";

    fn table(heading: &str, cells: &[&str]) -> String {
        format!("## {heading}\n\n| a | b |\n|---|---|\n| {} |\n", cells.join(" | "))
    }

    #[test]
    fn rows_of_clauses_are_checked() {
        let wrong = |heading: &str, cells: &[&str]| wrong_clauses(&rows(&table(heading, cells))).len();
        for cells in [
            [LINK, "MUST", "a", "`net/stream`, hyper", TEST],
            [LINK, "MUST NOT", "a", "hyper", "none"],
            [LINK, "SHOULD", "a", "`proxy/fields`", "none"],
            ["[§9](https://html.spec.whatwg.org/#parsing)", "MAY", "a", "`frames`", "`tests/tidy/main.rs`"],
        ] {
            assert_eq!(wrong("A", &cells), 0, "{cells:?}");
        }
        let not_met = [LINK, "MUST", "a", "because of b", "none"];
        assert_eq!(wrong(DEVIATIONS, &not_met), 0);
        for cells in [
            &[LINK, "MUST", "a", "`net/stream`", "none"][..],
            &[LINK, "MUST NOT", "a", "`net/stream`, hyper", "none"],
            &[LINK, "MUST", "a", "`net/nothing`", TEST],
            &[LINK, "OUGHT", "a", "hyper", "none"],
            &[LINK, "MUST", "a", "hyper", ""],
            &[LINK, "MUST", "a", "hyper", "by hand"],
            &[LINK, "MUST", "a", "hyper", "`tests/none`"],
            &[LINK, "MUST", "a", "hyper"],
            &["§5.1", "MUST", "a", "hyper", TEST],
            &["[§5.1](https://www.rfc-editor.org/rfc/rfc9112#section-5.2)", "MUST", "a", "hyper", TEST],
            &["[§5.1](https://www.rfc-editor.org/rfc/rfc9112)", "MUST", "a", "hyper", TEST],
        ] {
            assert_eq!(wrong("A", cells), 1, "{cells:?}");
        }
        for section in ["", "5.", "05", "5.0", "5.a", "A", "5..1", "+5"] {
            let clause = format!("[§{section}](https://html.spec.whatwg.org/)");
            assert_eq!(wrong("A", &[&clause, "MUST", "a", "hyper", TEST]), 1, "{section:?}");
        }
    }

    #[test]
    fn rows_of_assumptions_are_checked() {
        let wrong = |cells: &[&str]| wrong_assumptions(&rows(&table("A", cells))).len();
        assert_eq!(wrong(&["a", "`net/stream`", TEST, "closed: b"]), 0);
        for cells in [
            &["a", "`net/stream`", TEST][..],
            &["a", "`net/nothing`", TEST, "closed: b"],
            &["a", "`net/stream`", "b", "closed: b"],
            &["a", "`net/stream`", TEST, "closed"],
            &["a", "`net/stream`", TEST, "it breaks"],
        ] {
            assert_eq!(wrong(cells), 1, "{cells:?}");
        }
    }

    #[test]
    fn named_tests_are_found() {
        for test in [
            ("tidy", "documents::tests::named_tests_are_found"),
            ("server", "limits::hosts::a_request_names_its_host_once_and_well"),
            ("lib", "body::ranges::conditional::tests::preconditions_have_an_order"),
            ("proxy", "framing::a_length_is_passed_on_as_one_number"),
            ("proxy", "lib::fields::tests::a_length_is_one_number_or_invalid"),
            ("durable_streams", "restart::everything_is_kept"),
        ] {
            assert!(exists(test), "{test:?}");
        }
        for test in [
            ("tidy", "documents::tests::named_tests_are_lost"),
            ("nothing", "documents::named_tests_are_found"),
            ("proxy", "lib::framing::a_length_is_passed_on_as_one_number"),
        ] {
            assert!(!exists(test), "{test:?}");
        }
    }
}
