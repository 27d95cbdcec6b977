//! Circles of imports between files.

use std::collections::{BTreeMap, BTreeSet};

use crate::lex::code;

/// Returns the circles of imports between `files`, each as the sorted names of its modules. Imports by unit tests and
/// by the `mod.rs` that declares a module do not count.
pub(crate) fn circles(files: &[(String, String)]) -> Vec<Vec<String>> {
    let files: BTreeMap<String, String> = files.iter().map(|(path, text)| (module(path), program(text))).collect();
    let uses: BTreeMap<&str, Vec<String>> =
        files.iter().map(|(name, text)| (name.as_str(), uses(name, text))).collect();
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (&name, paths) in &uses {
        let targets = paths.iter().filter_map(|path| target(&files, &uses, path));
        graph.insert(name, targets.filter(|&target| target != name).collect());
    }
    // Two files are in the same circle if each can be reached from the other.
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|&name| (name, reached(&graph, name))).collect();
    let mut found = BTreeSet::new();
    for (&name, there) in &reach {
        let circle: Vec<String> =
            there.iter().filter(|&&other| reach[other].contains(name)).map(|&other| other.to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reached<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut all, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(name) = next.pop() {
        for &other in &graph[name] {
            if all.insert(other) {
                next.push(other);
            }
        }
    }
    all
}

/// Returns the module of a path: `net` for `src/net/mod.rs`, `net/stream` for `src/net/stream.rs`. `src/sys/linux` holds
/// the module `sys`.
pub(crate) fn module(path: &str) -> String {
    let inside = path.split_once("src/").and_then(|(_, path)| path.strip_suffix(".rs")).expect("a source");
    inside.strip_suffix("/mod").unwrap_or(inside).replace("sys/linux", "sys")
}

/// Returns the program text without unit tests.
pub(crate) fn program(text: &str) -> String {
    let code = code(text);
    let tests = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    code[..tests].to_owned()
}

/// Returns the paths that a file imports, from the root of the crate.
pub(crate) fn uses(name: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let (statement, line) = (&code[start..], {
            start += line.len();
            line.trim_start()
        });
        let Some((visibility, _)) = line.split_once("use ") else { continue };
        if visibility.is_empty() || (visibility.starts_with("pub") && visibility.ends_with(' ')) {
            let statement = &statement[..statement.find(';').unwrap_or(statement.len())];
            let (_, tree) = statement.split_once("use ").expect("it is in the line");
            flatten("", tree, &mut |path| found.extend(absolute(name, path)));
        }
    }
    found
}

/// Calls `found` with each path of a tree of imports.
fn flatten(prefix: &str, tree: &str, found: &mut impl FnMut(&str)) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        return found(&format!("{prefix}{path}"));
    };
    let (prefix, inner) =
        (format!("{prefix}{}", &tree[..open]), &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                flatten(&prefix, &inner[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        flatten(&prefix, &inner[start..], found);
    }
}

/// Returns a path from the root of the crate, with `/`, if it is in the crate. In a `mod.rs` paths may begin at its
/// modules.
pub(crate) fn absolute(name: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut base: Vec<&str> = name.split('/').collect();
    match parts[0] {
        "crate" => base.clear(),
        "super" | "self" => {}
        first if first.chars().next().is_some_and(|c| c.is_lowercase()) => {
            base.extend(parts);
            return Some(base.join("/"));
        }
        _ => return None,
    }
    while let Some(&first) = parts.first()
        && ["crate", "super", "self"].contains(&first)
    {
        if first == "super" {
            base.pop();
        }
        parts.remove(0);
    }
    base.extend(parts);
    Some(base.join("/"))
}

/// Returns the file that defines the target of a path, through re-exports.
fn target<'a>(files: &'a BTreeMap<String, String>, uses: &BTreeMap<&str, Vec<String>>, path: &str) -> Option<&'a str> {
    let owner = |path: &str| {
        let mut ends = [path.len()].into_iter().chain(path.rmatch_indices('/').map(|(at, _)| at));
        let found = ends.find_map(|end| files.get_key_value(&path[..end]));
        found.map(|(name, _)| name.as_str())
    };
    let mut file = owner(path)?;
    if path == file {
        // The module itself, whose items are named by it.
        return Some(file);
    }
    let item = path[file.len()..].strip_prefix('/').filter(|item| !item.contains('/'))?;
    // A folder re-exports from its files, and a module from its folders.
    for _ in 0..3 {
        let exports = |other: &&String| other.ends_with(&format!("/{item}")) && owner(other) != Some(file);
        let Some(other) = uses[file].iter().find(exports).and_then(|other| owner(other)) else { break };
        file = other;
    }
    Some(file)
}
