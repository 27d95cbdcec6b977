//! Skipped tests, or parts of tests: reported, counted, and failed where everything is required.

use std::fmt::Display;
use std::io::Write as _;

/// Reports a skipped test, or a part of one. Fails the test if `MILLSTREAM_REQUIRE` is `all`, for machines that must
/// support everything. The portable build cannot.
pub fn skip(what: &str, why: impl Display) {
    let message = format!("{what}: {why}");
    let is_required = std::env::var("MILLSTREAM_REQUIRE").as_deref() == Ok("all");
    assert!(cfg!(millstream_portable) || !is_required, "skipped: {message}");
    tell(&message);
}

/// Like [`skip`], for features disabled on purpose: never a failure.
///
/// The message bypasses the test runner, which hides the output of passing tests. It is also appended to the file that
/// `MILLSTREAM_SKIPS` names: a line with the program, the test, and the skipped part with its reason, separated by
/// tabs.
pub fn tell(message: &str) {
    // A failure to print must not fail the test.
    let _ = writeln!(std::io::stderr(), "skipped: {message}");
    let Some(path) = std::env::var_os("MILLSTREAM_SKIPS") else { return };
    let program = std::env::current_exe().unwrap();
    // Without the hash that cargo appends.
    let program = program.file_stem().unwrap().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let line = format!("{program}\t{}\t{}\n", thread.name().unwrap_or("?"), message.replace(['\n', '\t'], " "));
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    // A single write, so that lines of concurrent programs stay whole.
    file.write_all(line.as_bytes()).unwrap();
}
