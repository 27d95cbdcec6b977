//! Tests, or parts of tests, that are left out: told, counted, and failures where everything is required.
#![allow(dead_code, unreachable_pub, reason = "shared by the crate, its integration tests and its examples")]

use std::fmt::Display;
use std::io::Write as _;

/// Tells that a test, or a part of one, is left out. Where `MILLSTREAM_REQUIRE` is `all`, as in a check on a machine that
/// should have everything, the test fails instead.
pub fn skip(what: &str, why: impl Display) {
    let message = format!("{what}: {why}");
    assert!(std::env::var("MILLSTREAM_REQUIRE").as_deref() != Ok("all"), "skipped: {message}");
    tell(&message);
}

/// As [`skip`], for what was turned off on purpose: no failure anywhere.
///
/// The message goes past the test runner, which hides the output of tests that pass, and is appended to the file that
/// `MILLSTREAM_SKIPS` names: a line with the program, the test, and what is left out and why, separated by tabs.
pub fn tell(message: &str) {
    // A message that cannot be written is no reason to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {message}");
    let Some(path) = std::env::var_os("MILLSTREAM_SKIPS") else { return };
    let program = std::env::current_exe().unwrap();
    // Without the digits that cargo adds.
    let program = program.file_stem().unwrap().to_string_lossy();
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let line = format!("{program}\t{}\t{}\n", thread.name().unwrap_or("?"), message.replace(['\n', '\t'], " "));
    let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
    // One write, so that lines of programs that run at the same time stay whole.
    file.write_all(line.as_bytes()).unwrap();
}
