//! `RESULTS.md`: the tables of a run, between two marks of the page.

use std::fs;
use std::path::Path;

use super::save::save;
use super::summary::Summary;
use super::{plausible, text};
use crate::run::Results;
use crate::say;

/// What is done with the tables of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Print,
    Write,
    /// Fails if the page has other tables.
    Check,
}

/// Prints the tables of a run in Markdown, puts them into a page in place of those of another run, or compares them with those of
/// the page. Refuses a run in which a cell contradicts those of the next sizes.
pub(crate) fn numbers(run: &Path, into: &Path, purpose: Purpose) -> Result<(), String> {
    let results = Results::read(run)?;
    let summaries = Summary::all(&results);
    plausible::check(&summaries)?;
    let tables = text::markdown(&results, &summaries);
    if purpose == Purpose::Print {
        say(tables);
        return Ok(());
    }
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", into.display());
    let old = fs::read_to_string(into).map_err(|e| failed(&e))?;
    let new = between_marks(&old, &tables).map_err(|e| failed(&e))?;
    match purpose {
        Purpose::Check if new != old => Err(failed(&format_args!("has other tables than {}", run.display()))),
        Purpose::Write => save(into, new.as_bytes()),
        Purpose::Check | Purpose::Print => Ok(()),
    }
}

/// Returns the page with `tables` between its marks.
fn between_marks(page: &str, tables: &str) -> Result<String, String> {
    let [begin, end] = ["<!-- versus begin -->\n", "<!-- versus end -->\n"];
    let after = |mark: &str| match page.match_indices(mark).collect::<Vec<_>>()[..] {
        [(at, _)] => Ok(at),
        [] => Err(format!("has no line `{}`", mark.trim_end())),
        _ => Err(format!("has several lines `{}`", mark.trim_end())),
    };
    let (head, tail) = (after(begin)? + begin.len(), after(end)?);
    if tail < head {
        return Err("ends the tables before it begins them".to_owned());
    }
    Ok(format!("{}\n{tables}\n{}", &page[..head], &page[tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_go_between_the_marks_of_a_page() {
        let page = "a\n<!-- versus begin -->\nold\n<!-- versus end -->\nb\n";
        let expected = "a\n<!-- versus begin -->\n\nnew\n\n<!-- versus end -->\nb\n";
        assert_eq!(between_marks(page, "new\n").unwrap(), expected);
        assert_eq!(between_marks(expected, "new\n").unwrap(), expected, "the same again");
        for (wrong, why) in [
            ("a\n", "no line `<!-- versus begin -->`"),
            ("<!-- versus begin -->\n", "no line `<!-- versus end -->`"),
            ("<!-- versus end -->\n<!-- versus begin -->\n", "before it begins"),
            ("<!-- versus begin -->\n<!-- versus end -->\n<!-- versus end -->\n", "several lines"),
        ] {
            assert!(between_marks(wrong, "new\n").unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_run_is_written_into_the_page_and_checked() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded.jsonl");
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("RESULTS.md");
        fs::write(&page, "# Results\n<!-- versus begin -->\n<!-- versus end -->\nend\n").unwrap();
        let error = numbers(&run, &page, Purpose::Check).unwrap_err();
        assert!(error.contains("has other tables than"), "{error}");
        numbers(&run, &page, Purpose::Write).unwrap();
        numbers(&run, &page, Purpose::Check).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("# Results\n") && text.ends_with("-->\nend\n"), "{text}");
        assert_eq!(tables(&text).len(), 5, "{text}");
    }

    /// Returns the first column of each generated table that has all cells. Pages of older versions lack that of p99.9.
    fn tables(page: &str) -> Vec<Vec<&str>> {
        let (_, rest) = page.split_once("<!-- versus begin -->").unwrap();
        let (generated, _) = rest.split_once("<!-- versus end -->").unwrap();
        let titles = [
            "\nCPU time for each",
            "\nRequests or deliveries a second:",
            "\np99, ms:",
            "\np99.9, ms:",
            "\nMemory at the end of a round",
        ];
        let rows = titles.into_iter().filter_map(|title| {
            let Some((_, table)) = generated.split_once(title) else {
                assert!(title.contains("p99.9"), "no table `{}`", title.trim());
                return None;
            };
            let lines = table.lines().skip_while(|line| !line.starts_with('|'));
            let table = lines.take_while(|line| line.starts_with('|'));
            Some(table.filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect())
        });
        rows.collect()
    }

    #[test]
    fn the_page_of_results_is_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
        let page = fs::read_to_string(path).unwrap();
        between_marks(&page, "").unwrap();
        let tables = tables(&page);
        assert!(tables[0].len() > 30, "{tables:?}");
        assert!(tables.iter().all(|cells| *cells == tables[0]), "each table has the same cells: {tables:?}");
    }
}
