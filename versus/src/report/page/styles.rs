//! Styles of servers, and names of places of the page.

use maud::{Markup, html};

use crate::report::summary::{OURS, Summary};
use crate::report::svg::marker;

/// Servers and their styles, the same on the whole page.
#[derive(Debug)]
pub(super) struct Styles<'a>(pub(super) Vec<&'a str>);

impl<'a> Styles<'a> {
    pub(super) fn of(summaries: &'a [Summary<'a>]) -> Self {
        let mut names = Vec::new();
        for row in summaries.iter().flat_map(|summary| &summary.rows) {
            if !names.contains(&row.name) {
                names.push(row.name);
            }
        }
        // A server that failed in the first cell keeps its place before ours otherwise.
        names.sort_by_key(|name| *name != OURS);
        Self(names)
    }

    pub(super) fn style(&self, name: &str) -> usize {
        self.0.iter().position(|known| *known == name).unwrap_or(0)
    }

    /// Names the servers that `has` wants, with their markers.
    pub(super) fn legend(&self, has: impl Fn(&str) -> bool) -> Markup {
        html! {
            ul.legend {
                @for (style, name) in self.0.iter().enumerate().filter(|(_, name)| has(name)) {
                    li { svg viewBox="0 0 14 14" aria-hidden="true" { (marker(style, 7.0, 7.0, 5.0)) } (name) }
                }
            }
        }
    }
}

/// Returns a name that stands in an id and in a link.
pub(super) fn slug(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}
