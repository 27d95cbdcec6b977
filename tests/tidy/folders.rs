//! The order of folders and files inside a module.

use std::collections::{BTreeMap, BTreeSet};

use crate::circles::{absolute, module, program, uses};
use crate::lex::words;

/// The folders and files of modules, from the top down. Imports between them run downwards only.
pub(crate) const FOLDERS: &[(&str, &[&str])] = &[
    (
        "net",
        &[
            "connect",
            "listen",
            "stream",
            "egress",
            "options",
            "resumed",
            "receive",
            "pace",
            "profile",
            "stats",
            "send_strategy",
        ],
    ),
    (
        "server",
        &[
            "serve_cores",
            "serve",
            "until_drain",
            "accept",
            "watch",
            "connection",
            "request",
            "response",
            "drain",
            "state",
            "limits",
            "trusted",
            "error",
            "lock",
            "tls",
        ],
    ),
    ("sse", &["hub", "body", "log", "ring", "wake", "event", "stats", "error", "lock"]),
];

/// Returns the imports of `module` that do not run downwards in `order`, and what is not in it. Unit tests do not count.
pub(crate) fn upwards(module_name: &str, order: &[&str], files: &[(String, String)]) -> Vec<String> {
    let inside: BTreeMap<String, String> = files
        .iter()
        .map(|(path, text)| (module(path), text))
        .filter(|(name, _)| name.starts_with(&format!("{module_name}/")) && !name.ends_with("/tests"))
        .map(|(name, text)| (name, program(text)))
        .collect();
    let root = files.iter().find(|(path, _)| module(path) == module_name).map_or("", |(_, text)| text);
    let exports = uses(module_name, &program(root));
    let child = |path: &str| path.strip_prefix(&format!("{module_name}/"))?.split('/').next().map(str::to_owned);
    let place = |name: &str| order.iter().position(|other| *other == name);
    let mut wrong = BTreeSet::new();
    for (name, code) in &inside {
        let from = child(name).expect("it is in the module");
        let Some(from) = place(&from) else {
            wrong.insert(format!("`{module_name}/{from}` is not in the order"));
            continue;
        };
        for path in uses(name, code).into_iter().chain(expressions(name, code)) {
            let Some(first) = child(&path) else { continue };
            // An item that the module exports belongs to the folder from which it does.
            let exported =
                || exports.iter().find(|export| export.ends_with(&format!("/{first}"))).and_then(|e| child(e));
            let Some(to) = place(&first).or_else(|| place(&exported()?)) else {
                wrong.insert(format!("`{name}` imports `{path}`, which is in no folder"));
                continue;
            };
            if to < from {
                wrong.insert(format!("`{name}` imports `{path}`, which is above it"));
            }
        }
    }
    wrong.into_iter().collect()
}

/// Returns the paths from the root of the crate, and those through `super`, that `code` names outside of imports.
fn expressions(name: &str, code: &str) -> Vec<String> {
    let path = |at: usize| {
        let end = code[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(code.len() - at);
        absolute(name, code[at..at + end].trim_end_matches(':'))
    };
    let begins = |&at: &usize| !code[..at].ends_with("::");
    ["crate", "super"].into_iter().flat_map(|first| words(code, first)).filter(begins).filter_map(path).collect()
}
