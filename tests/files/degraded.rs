//! The same responses with fewer kernel features.

/// Tests of `Files` as a service.
const TESTS: [&str; 7] = ["answers::", "changes::", "escapes::", "hyper_bodies::", "mapped::", "slow::", "switched::"];

/// Runs these tests again in a process with one feature disabled.
fn without(what: &str) {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(TESTS)
        .env("MILLSTREAM_DISABLE", what)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "without {what}:\n{out}\n{}", String::from_utf8_lossy(&child.stderr));
    assert!(out.contains("test result: ok.") && !out.contains(" 0 passed"), "{out}");
}

#[test]
fn without_mappings() {
    without("mapping");
}

#[test]
fn without_knowing_what_is_cached() {
    without("cachestat");
}

#[test]
fn without_reads_that_do_not_wait() {
    without("read_nowait,sendfile");
}

#[test]
fn without_any_of_it() {
    without("mapping,cachestat,read_nowait,sendfile");
}
