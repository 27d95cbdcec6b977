//! Rules of the code base, as tests: allowed imports, places of `unsafe`, lengths of files, and leftovers. Each rule is
//! a function of a path and a text. The tests below show that it finds its targets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

mod budget;
mod circles;
mod documents;
mod folders;
mod lex;

use lex::{code, ident, is_unsafe, line_of, words};

/// Modules from the bottom up. A module imports only from lower layers, so there is no circle between modules.
const LAYERS: &[&[&str]] = &[
    &["counters", "spread", "sync"],
    &["sys"],
    &["buf"],
    &["ops"],
    &["ring"],
    &["runtime"],
    &["codec", "fs", "net"],
    &["body", "copy"],
    &["files", "sse"],
    &["server"],
    &["middleware"],
    &["metrics"],
];

/// Files that belong to no module: the crate root, and code for the tests of users.
const EXEMPT: &[&str] = &["src/lib.rs", "src/testing.rs"];

/// The modules that the unit tests of every module use.
const TEST_SUPPORT: &[&str] = &["report", "skips"];

/// All files with `unsafe` code.
const UNSAFE: &[&str] = &[
    "src/buf/origin.rs",
    "src/buf/pool.rs",
    "src/buf/slab.rs",
    "src/sys/linux/call.rs",
    "src/sys/linux/exit.rs",
    "src/sys/linux/file.rs",
    "src/sys/linux/heap.rs",
    "src/sys/linux/map.rs",
    "src/sys/linux/map/guard.rs",
    "src/sys/linux/map/pages.rs",
    "src/sys/linux/path.rs",
    "src/sys/portable/borrow.rs",
    "src/sys/portable/exit.rs",
    "src/sys/receive.rs",
    "src/sys/linux/signal.rs",
    "src/sys/linux/socket.rs",
    "src/sys/linux/tcp.rs",
    "src/sys/linux/uring/ring.rs",
    "src/sys/linux/watch.rs",
    "src/ring/tests/fake.rs",
    "src/ring/fill.rs",
    "src/ops/open/submit.rs",
    "src/ops/stat/submit.rs",
    "src/ops/vectored/submit.rs",
    "src/ring/port.rs",
    "src/ring/tests/sqe.rs",
];

/// Modules that may contain files with `unsafe` code.
const UNSAFE_MODULES: &[&str] = &["src/sys/", "src/buf/", "src/ops/", "src/ring/"];

const LINES_MAX: usize = 400;

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the module of a file and its depth in modules: `src/net/stream.rs` is 2 deep in `net`.
fn module_of(path: &str) -> Option<(&str, usize)> {
    let inside = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let modules = inside.strip_suffix("/mod").unwrap_or(inside);
    Some((modules.split('/').next()?, modules.split('/').count()))
}

/// Finds the first names after `crate::`, and after enough `super::` to reach the root; `crate::{a, b}` gives both.
fn imports(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for at in words(code, "crate") {
        let Some(rest) = code[at + 5..].trim_start().strip_prefix("::") else { continue };
        let rest = rest.trim_start();
        let Some(list) = rest.strip_prefix('{') else {
            found.push((at, ident(rest)));
            continue;
        };
        let mut level = 0;
        let mut name_may_start = true;
        for (i, c) in list.char_indices() {
            match c {
                '{' => level += 1,
                '}' if level == 0 => break,
                '}' => level -= 1,
                ',' if level == 0 => name_may_start = true,
                c if c.is_whitespace() => {}
                _ if name_may_start => {
                    found.push((at, ident(&list[i..])));
                    name_may_start = false;
                }
                _ => {}
            }
        }
    }
    for at in words(code, "super").filter(|&at| !code[..at].ends_with("super::")) {
        let rest = code[at..].trim_start_matches("super::");
        // In a nested module this may be a name of the same module, which is harmless unless it equals the name of
        // another module.
        if (code[at..].len() - rest.len()) / "super::".len() >= depth && layer_of(ident(rest)).is_some() {
            found.push((at, ident(rest)));
        }
    }
    found
}

fn layers(path: &str, text: &str) -> Vec<String> {
    let Some((module, depth)) = module_of(path).filter(|_| !EXEMPT.contains(&path)) else { return Vec::new() };
    let Some(layer) = layer_of(module) else { return vec![format!("{path}: the module `{module}` is in no layer")] };
    let code = code(text);
    let mut wrong = Vec::new();
    for (at, name) in
        imports(&code, depth).into_iter().filter(|&(_, name)| name != module && !TEST_SUPPORT.contains(&name))
    {
        let at = format!("{path}:{}", line_of(&code, at));
        match layer_of(name) {
            Some(other) if other < layer => {}
            Some(_) => wrong.push(format!("{at}: `{module}` imports `{name}`, which is in no lower layer")),
            None => {
                wrong.push(format!("{at}: `crate::{name}` is not a module: import from the module that defines it"))
            }
        }
    }
    wrong
}

/// Finds `unsafe` blocks and impls without a safety comment above their statement.
fn unexplained(path: &str, text: &str) -> Vec<String> {
    let code = code(text);
    let lines: Vec<(&str, &str)> = text.lines().zip(code.lines()).collect();
    let mut wrong = Vec::new();
    for at in words(&code, "unsafe") {
        let next = code[at + "unsafe".len()..].trim_start();
        if !next.starts_with('{') && ident(next) != "impl" {
            continue;
        }
        let line = line_of(&code, at);
        // Up to the start of the statement, then the comment above it.
        let mut above = lines[..line - 1].iter().rev().skip_while(|(_, code)| {
            let code = code.trim_end();
            !code.trim().is_empty() && !code.ends_with([';', '{', '}'])
        });
        let explained = above
            .by_ref()
            .take_while(|(text, code)| code.trim().is_empty() && text.trim_start().starts_with("//"))
            .any(|(text, _)| text.contains("SAFETY:"));
        if !explained {
            wrong.push(format!("{path}:{line}: `unsafe` without a `// SAFETY:` comment"));
        }
    }
    wrong
}

fn shape(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !text.starts_with("//! ") {
        wrong.push(format!("{path}: no `//!` header"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        wrong.push(format!("{path}: {lines} lines, {LINES_MAX} are allowed: which two subjects are in it?"));
    }
    wrong
}

fn leftovers(path: &str, text: &str) -> Vec<String> {
    // Split in two parts, so that this file passes its own test.
    let banned = [
        ("/ho", "me/"),
        ("/ro", "ot/"),
        ("/wo", "rk/"),
        ("/tm", "p/"),
        ("/Us", "ers/"),
        ("to", "do!"),
        ("unimpl", "emented!"),
        ("FIX", "ME"),
        ("#[ig", "nore"),
    ];
    let banned = banned.map(|(a, b)| [a, b].concat());
    let found = |line: &str| banned.iter().find(|banned| line.contains(banned.as_str())).cloned();
    let lines = text.lines().enumerate();
    lines.filter_map(|(n, line)| Some(format!("{path}:{}: `{}`", n + 1, found(line)?))).collect()
}

/// Returns the features of a manifest, and whether each is in the default set.
fn features(manifest: &str) -> BTreeMap<&str, bool> {
    let (_, section) = manifest.split_once("[features]\n").unwrap();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let entries: Vec<_> = lines.filter_map(|line| line.split_once(" = [")).collect();
    let (_, default) = entries.iter().find(|(name, _)| *name == "default").unwrap();
    let is_default = |name: &str| default.contains(&format!("\"{name}\""));
    entries
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "default")
        .map(|name| (name, is_default(name)))
        .collect()
}

/// Returns the features in the table of the crate documentation, and whether each is said to be in the default set.
fn table(root: &str) -> BTreeMap<&str, bool> {
    let rows = root.lines().filter_map(|line| line.strip_prefix("//! | `"));
    rows.filter_map(|row| row.split_once("` | ")).map(|(name, rest)| (name, rest.starts_with("yes |"))).collect()
}

/// Returns the name of the example or bench that starts in this file: `examples/load.rs`, `examples/load/main.rs`.
fn program(path: &str) -> Option<&str> {
    let (_, inside) = path.split_once('/')?;
    inside.strip_suffix("/main.rs").or_else(|| inside.strip_suffix(".rs")).filter(|name| !name.contains('/'))
}

/// Returns whether an example or bench is run by a check or shown to readers.
fn is_named(path: &str, check: &str, readme: &str) -> bool {
    let Some(name) = program(path) else { return true };
    let all = if path.starts_with("benches/") { "--benches" } else { "--examples" };
    let runs_all = check.contains(all) || check.contains("--all-targets");
    runs_all || words(check, name).chain(words(readme, name)).next().is_some()
}

/// Returns every file under `dir` with one of `endings`: its path from the root of the crate, and its text.
fn files(dir: &str, endings: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(root.join(&dir)) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            let path = format!("{dir}/{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                // Build output; `benches/peers` is a separate package.
                true if path.ends_with("/target") => {}
                true => dirs.push(path),
                false if endings.iter().any(|ending| path.ends_with(ending)) => {
                    found.push((path, fs::read_to_string(entry.path()).unwrap()));
                }
                false => {}
            }
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<(String, String)> {
    let sources = files("src", &[".rs"]);
    assert!(sources.len() > 10, "found only {} sources", sources.len());
    sources
}

fn all_well(rule: impl Fn(&str, &str) -> Vec<String>, files: &[(String, String)]) {
    let wrong: Vec<String> = files.iter().flat_map(|(path, text)| rule(path, text)).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn modules_import_only_from_layers_below() {
    all_well(layers, &sources());
}

#[test]
fn unsafe_lives_where_it_is_listed() {
    let listed: BTreeSet<&str> = UNSAFE.iter().copied().collect();
    assert!(listed.iter().all(|path| UNSAFE_MODULES.iter().any(|module| path.starts_with(module))), "{listed:?}");
    let sources = sources();
    let found = sources.iter().filter(|(_, text)| is_unsafe(text)).map(|(path, _)| path.as_str()).collect();
    assert_eq!(listed, found, "left: listed in this file; right: found");
}

#[test]
fn unsafe_is_explained() {
    all_well(unexplained, &sources());
}

#[test]
fn files_have_a_header_and_one_subject() {
    let mut packages = ["crates", "examples/durable_streams", "examples/llm_gateway", "testkit", "versus"]
        .map(|dir| files(dir, &[".rs"]))
        .concat();
    // As in this package, tests may be longer.
    packages.retain(|(path, _)| !(path.starts_with("crates/") && path.contains("/tests/")));
    all_well(shape, &[sources(), packages].concat());
}

#[test]
fn nothing_is_left_lying_about() {
    let endings = &[".rs", ".md", ".toml"];
    let mut files: Vec<_> = ["src", "tests", "examples", "benches", "crates", "docs", "testkit", "versus"]
        .iter()
        .flat_map(|dir| files(dir, endings))
        .collect();
    let named = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|entry| entry.unwrap().file_name());
    for name in named.filter_map(|name| name.into_string().ok()) {
        if name == "Cargo.toml" || name.ends_with(".md") {
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap();
            files.push((name, text));
        }
    }
    all_well(leftovers, &files);
}

#[test]
fn examples_and_benches_are_run_or_shown() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    // The checks are not part of the package, so only the README counts there.
    let checks: String = files(".ci/parts", &[""]).into_iter().map(|(_, text)| text).collect();
    let readme = read("README.md").unwrap();
    let mut programs = files("examples", &[".rs"]);
    programs.extend(files("benches", &[".rs"]));
    let lost: Vec<_> = programs.iter().map(|(path, _)| path).filter(|path| !is_named(path, &checks, &readme)).collect();
    assert!(lost.is_empty(), "neither in the check nor in the README: {lost:?}");
}

#[test]
fn each_fuzz_target_is_built_explained_and_run() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let found = files("fuzz/fuzz_targets", &[".rs"]);
    let found: BTreeSet<&str> =
        found.iter().filter_map(|(path, _)| path.split('/').next_back()?.strip_suffix(".rs")).collect();
    let (manifest, guide, workflow) =
        (read("fuzz/Cargo.toml"), read("docs/testing.md"), read(".github/workflows/fuzz.yml"));
    let built = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")?.strip_suffix(".rs\""));
    let (_, section) = guide.split_once("## Fuzzing").unwrap();
    let explained = section.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let run = workflow.split_once("target: [").unwrap().1.split_once(']').unwrap().0.split(", ");
    assert!(found.len() > 10);
    assert_eq!(built.collect::<BTreeSet<_>>(), found, "left: fuzz/Cargo.toml; right: fuzz/fuzz_targets");
    assert_eq!(explained.collect::<BTreeSet<_>>(), found, "left: docs/testing.md; right: fuzz/fuzz_targets");
    assert_eq!(run.collect::<BTreeSet<_>>(), found, "left: .github/workflows/fuzz.yml; right: fuzz/fuzz_targets");
}

#[test]
fn the_tests_that_documents_name_exist() {
    for (document, least) in [("THREATS.md", 100), ("docs/assumptions.md", 30), ("docs/clauses.md", 100)] {
        let text = documents::read(document);
        let named: Vec<_> = documents::named_tests(&text).collect();
        assert!(named.len() > least, "{document} names only {} tests", named.len());
        let lost: Vec<_> = named.into_iter().filter(|test| !documents::exists(*test)).collect();
        assert!(lost.is_empty(), "{document} names what is no test: {lost:?}");
    }
}

#[test]
fn clauses_name_a_section_and_required_ones_a_test() {
    let text = documents::read("docs/clauses.md");
    let rows = documents::rows(&text);
    assert!(rows.len() > 100, "only {} rows", rows.len());
    let wrong = documents::wrong_clauses(&rows);
    assert!(wrong.is_empty(), "docs/clauses.md\n{}\n", wrong.join("\n"));
}

#[test]
fn assumptions_say_what_happens_without_them() {
    let text = documents::read("docs/assumptions.md");
    let rows = documents::rows(&text);
    assert!(rows.len() > 30, "only {} rows", rows.len());
    let wrong = documents::wrong_assumptions(&rows);
    assert!(wrong.is_empty(), "docs/assumptions.md\n{}\n", wrong.join("\n"));
}

#[test]
fn packages_keep_to_their_budgets() {
    let mut over = Vec::new();
    for &(dir, most) in budget::LINES {
        let lines = budget::lines(&files(dir, &[".rs"]));
        println!("{dir}: {lines} lines of code, {most} are allowed");
        over.extend((lines > most).then(|| format!("{dir} has {lines} lines of code, {most} are allowed")));
    }
    let api = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api.txt")).unwrap();
    let (items, most) = (api.lines().count(), budget::PUBLIC_ITEMS);
    println!("tests/api.txt: {items} public items, {most} are allowed");
    over.extend((items > most).then(|| format!("{items} public items, {most} are allowed")));
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn the_tables_of_features_are_complete() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let (manifest, root, readme) = (read("Cargo.toml"), read("src/lib.rs"), read("README.md"));
    let features = features(&manifest);
    assert_eq!(features, table(&root), "left: Cargo.toml; right: the table in src/lib.rs");
    let missing: Vec<_> =
        features.keys().filter(|name| **name != "body" && !readme.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in the README: {missing:?}");
}

#[test]
fn the_readme_names_the_rust_version() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let (manifest, readme) = (read("Cargo.toml"), read("README.md"));
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    for text in [format!("badge/rust-{version}%2B-"), format!("| Rust | {version} or later")] {
        assert!(readme.contains(&text), "README.md has no `{text}`");
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for dir in [
        "src",
        "versus/src",
        "crates/frames/src",
        "crates/handoff/src",
        "crates/layers/src",
        "crates/proxy/src",
        "crates/proxy-protocol/src",
        "crates/redis/src",
        "crates/resumable/src",
        "crates/topics/src",
        "crates/websocket/src",
    ] {
        let circles = circles::circles(&files(dir, &[".rs"]));
        found.extend(circles.iter().map(|circle| format!("{dir}: {}", circle.join(" "))));
    }
    assert!(found.is_empty(), "move what two files share into a file of its own:\n{}\n", found.join("\n"));
}

#[test]
fn imports_inside_a_module_run_downwards() {
    let sources = sources();
    let found = folders::FOLDERS.iter().flat_map(|(module, order)| folders::upwards(module, order, &sources));
    let wrong: Vec<String> = found.collect();
    assert!(wrong.is_empty(), "the order is in tests/tidy/folders.rs\n{}\n", wrong.join("\n"));
}

/// Tests of the rules: each finds its targets, and nothing else.
mod rules {
    use super::*;

    #[test]
    fn imports_go_down() {
        for text in [
            "use crate::sys::call;",
            "use crate::{buf::{pool, origin}, sys};",
            "fn f() { crate::net::stream() }",
            "use super::egress;",
            "use crate::skips::skip;",
            "// use crate::server::serve;",
        ] {
            assert_eq!(layers("src/net/stream.rs", text), [""; 0], "{text}");
        }
        for text in [
            "use crate::server::serve;",
            "use crate::fs::File;",
            "use crate::{sys::call, server::serve};",
            "use crate::{\n    buf::{pool, server},\n    server,\n};",
            "use super::super::server::serve;",
            "fn f() { crate::Capabilities::get() }",
        ] {
            assert_eq!(layers("src/net/stream.rs", text).len(), 1, "{text}");
        }
        assert_eq!(layers("src/runtime.rs", "use super::net::x;").len(), 1);
        assert_eq!(layers("src/fs/mod.rs", "use crate::net::TcpStream;").len(), 1, "the same layer");
        assert_eq!(layers("src/attic/mod.rs", "").len(), 1, "a module in no layer");
        assert!(layers("src/lib.rs", "pub use crate::server::serve;").is_empty());
    }

    #[test]
    fn unsafe_needs_its_comment() {
        for text in [
            "// SAFETY: fine.\nunsafe { f() }",
            "a();\n// SAFETY: fine, and\n// for long.\nlet x =\n    1 + unsafe { f() };",
            "// SAFETY: fine.\nunsafe impl Send for A {}",
            "unsafe fn f() {}",
            "extern \"C\" { fn g(f: unsafe extern \"C\" fn()); }",
        ] {
            assert_eq!(unexplained("a.rs", text), [""; 0], "{text}");
        }
        for text in [
            "unsafe { f() }",
            "// Fine.\nunsafe impl Send for A {}",
            "// SAFETY: of the first.\nunsafe { f() };\nunsafe { g() };",
            "// SAFETY: far away.\n\nunsafe { f() }",
        ] {
            assert_eq!(unexplained("a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn files_are_shaped() {
        assert!(shape("a.rs", "//! A.\n").is_empty());
        assert_eq!(shape("a.rs", "// A.\n").len(), 1);
        assert!(shape("a.rs", &"//! A.\n".repeat(LINES_MAX)).is_empty());
        assert_eq!(shape("a.rs", &"//! A.\n".repeat(LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn leftovers_are_found() {
        for (a, b) in [("to", "do!()"), ("FIX", "ME: x"), ("\"/ho", "me/me/x\""), ("#[ig", "nore]"), ("/wo", "rk/x")] {
            assert_eq!(leftovers("a.rs", &format!("fine\n{a}{b}")).len(), 1, "{a}{b}");
        }
        assert!(leftovers("a.rs", "\"/etc/passwd\" and \"/proc/self/fd\", a homework, tmp/").is_empty());
    }

    #[test]
    fn features_and_their_tables_are_read() {
        let manifest = "[features]\ndefault = [\"a\"]\n# b\na = []\nb = [\"dep:c\"] # x\n\n[x]\nd = [\"e\"]\n";
        let expected = BTreeMap::from([("a", true), ("b", false)]);
        assert_eq!(features(manifest), expected);
        assert_eq!(
            table("//! | feature | default | |\n//! |---|---|---|\n//! | `a` | yes | x |\n//! | `b` | | y |\n"),
            expected
        );
    }

    #[test]
    fn circles_are_found() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = [
            file("src/a/mod.rs", "pub use b::B;\nmod b;\nmod c;\nmod d;"),
            file("src/a/b.rs", "use super::c::{C, D as E};"),
            file("src/a/c.rs", "use crate::a::B;\n// use super::d::D;"),
            file("src/a/d.rs", "use super::b::B;\n#[cfg(test)]\nmod tests {\n    use crate::a::c;\n}"),
        ];
        assert_eq!(circles::circles(&files), [["a/b", "a/c"]]);
    }

    #[test]
    fn imports_inside_a_module_are_ordered() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let wrong = |text: &str| {
            let files = [
                file("src/a/mod.rs", "pub use top::{C, E};\nmod low;\nmod top;"),
                file("src/a/top/mod.rs", "pub use c::C;\nmod c;"),
                file("src/a/top/c.rs", "use crate::a::low::D;\nuse super::E;"),
                file("src/a/low.rs", text),
            ];
            folders::upwards("a", &["top", "low"], &files)
        };
        for text in ["use crate::b::C;", "// crate::a::top", "#[cfg(test)]\nmod tests {\n    use super::super::C;\n}"] {
            assert_eq!(wrong(text), [""; 0], "{text}");
        }
        for text in
            ["use super::top::C;", "use crate::a::{C, low};", "fn f() { crate::a::top::c() }", "fn f() { super::E }"]
        {
            assert_eq!(wrong(text).len(), 1, "{text}");
        }
        assert_eq!(folders::upwards("a", &[], &[file("src/a/low.rs", "")]).len(), 1, "not in the order");
    }

    #[test]
    fn programs_are_named() {
        assert!(is_named("examples/serve.rs", "cargo run --example serve", ""));
        assert!(is_named("examples/serve.rs", "", "`cargo run --release --example serve`"));
        assert!(is_named("examples/serve.rs", "cargo build --examples", ""));
        assert!(is_named("benches/files.rs", "cargo bench --benches", ""));
        assert!(!is_named("benches/files.rs", "cargo build --examples", "serve"));
        assert!(!is_named("examples/serve.rs", "", "a server"));
        assert!(!is_named("examples/load/main.rs", "", "loading"));
        assert!(is_named("examples/load/tally.rs", "", ""), "a part of a program");
    }
}
