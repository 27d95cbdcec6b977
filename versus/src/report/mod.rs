//! What a run says: a page, tables for the terminal and in Markdown, and what has changed between two runs.

mod compare;
mod frontier;
mod metric;
mod page;
mod plausible;
mod results;
mod save;
mod summary;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::path::{Path, PathBuf};

use crate::run::Results;
use crate::say;
use save::save;
use summary::Summary;

pub(crate) use compare::compare;
pub(crate) use results::{Purpose, numbers};

/// Writes the page and the raw results beside the lines of a run, and prints the tables.
pub(crate) fn write(results: &Results, lines: &Path) -> Result<(), String> {
    let json = lines.with_extension("json");
    let text = serde_json::to_vec(results).map_err(|e| e.to_string())?;
    save(&json, &text)?;
    let summaries = Summary::all(results);
    let page = write_page(results, &summaries, lines)?;
    say(text::terminal(results, &summaries));
    say(format_args!("\n{}\n{}\n", page.display(), json.display()));
    Ok(())
}

fn write_page(results: &Results, summaries: &[Summary<'_>], path: &Path) -> Result<PathBuf, String> {
    let page = path.with_extension("html");
    let raw = ["json", "jsonl"].map(|extension| path.with_extension(extension));
    let names = raw.iter().filter(|path| path.exists()).filter_map(|path| path.file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    save(&page, page::page(results, summaries, &names).as_bytes())?;
    Ok(page)
}

/// Writes the page of a run again.
pub(crate) fn page_again(run: &Path) -> Result<(), String> {
    let results = Results::read(run)?;
    let page = write_page(&results, &Summary::all(&results), run)?;
    say(format_args!("{}\n", page.display()));
    Ok(())
}
